# %% [markdown]
# # Which method is faithful?
#
# If scores are right about what counts for a model, masking the tokens of highest score changes its answer much,
# and masking those of lowest score changes it little. Here five methods are judged on 60 film reviews from SST-2
# and on the small model inside the package. That is enough to see how it is done, and not enough to rank methods
# for good: another model or replacement may well say otherwise.

# %%
import pandas as pd

import gaflow
from gaflow import plots

reviews = pd.read_csv("../data/reviews.csv")
explainer = gaflow.Explainer()
scores = gaflow.evaluate(
    explainer,
    reviews["text"].tolist(),
    labels=reviews["label"].tolist(),
    methods=["agf", "af", "rollout", "gradsam", "attcat"],
    levels=(10, 30, 50, 70, 90),  # per cent of the tokens that are masked
    eraser=False,
)
right = (scores.base_prediction == scores.gold).mean()
print(scores)
print(f"the model is right about {right:.0%} of the texts")

# %% [markdown]
# ## The table
#
# `aopc` is the probability that masking takes from the explained class, on average over texts and levels: high is
# good for `top` (most important tokens first), low for `bottom`. `srg` is the difference of the two. A control
# with random scores is always there: whatever does no better has shown nothing.

# %%
scores.table()[["aopc_top", "lodds_top", "accuracy_top", "aopc_bottom", "lodds_bottom", "srg"]].round(2)

# %% [markdown]
# All five do better than the control, `attcat` and `gradsam` by far; the flows `agf` and `af` are in the middle,
# beside `rollout`. Whether that is more than chance has to be asked.
#
# ## The curves
#
# The bands are bootstrap intervals over texts, 95 per cent each.

# %%
curves = scores.curves()
plots.curves(curves[curves["metric"].isin(["aopc", "accuracy"])], highlight=["agf"])

# %% [markdown]
# ## Is a difference one?
#
# `agf` against every other, text by text: the mean difference in AOPC with its interval, the p-value of a sign-flip
# test corrected for all rows (Holm), and Almost Stochastic Order: `epsilon` below 0.5 says that `agf` is more
# often the better one than not, `epsilon_back` the same of the other.

# %%
tests = scores.significance("agf")
top = tests[(tests["metric"] == "aopc") & (tests["order"] == "top")].set_index("other")
top[["difference", "low", "high", "p_holm", "epsilon", "epsilon_back"]].round(2)

# %% [markdown]
# So on this model `agf` is better than random scores, worse than `attcat` and `gradsam`, and 60 texts do not tell
# it from `af` and `rollout`: these intervals hold 0.
#
# ## One text, side by side
#
# The review on which `attcat` does better than `agf` by the most:

# %%
gap = scores.per_text("aopc", "top")
methods = list(scores.methods)
worst = int((gap[methods.index("attcat")] - gap[methods.index("agf")]).argmax())
text = reviews["text"][worst]
print(text)
plots.compare(explainer.compare(text, methods=["agf", "gradsam", "attcat"]))

# %% [markdown]
# Here `agf` gives all tokens scores of the same order, and the name of the film's star the largest; the other two
# single out "bad". Masking that one word is what changes the answer, so this text counts against `agf`.
#
# `scores.save("results")` keeps every text's numbers, and `Evaluation.load("results")` of `gaflow.evaluation`
# reads them again.
