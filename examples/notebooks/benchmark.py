# %% [markdown]
# # Which method is faithful?
#
# If scores show what a model uses, then masking the highest-scored tokens changes its answer a lot, and masking the
# lowest-scored tokens changes it little. This notebook tests five methods on 60 film reviews from SST-2, with the small
# model inside the package. That is enough to see how it works. It is not enough to rank methods: another model or
# another replacement may give another order.

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
# `aopc` is the probability that the explained class loses by masking, on average over texts and levels. It should be
# high for `top` (most important tokens first) and low for `bottom`. `srg` is the difference of the two. A control with
# random scores is always included. A method that is no better than the control has shown nothing.

# %%
scores.table()[["aopc_top", "lodds_top", "accuracy_top", "aopc_bottom", "lodds_bottom", "srg"]].round(2)

# %% [markdown]
# All five are better than the control, `attcat` and `gradsam` by far. The flows `agf` and `af` are in the middle, like
# `rollout`. Is that more than chance?
#
# ## The curves
#
# The bands are 95 % bootstrap intervals over texts.

# %%
curves = scores.curves()
plots.curves(curves[curves["metric"].isin(["aopc", "accuracy"])], highlight=["agf"])

# %% [markdown]
# ## Is the difference significant?
#
# Compare `agf` with each of the others, text by text. The table has the mean difference in AOPC with its interval, and
# the p-value of a sign-flip test, corrected for all rows (Holm). `epsilon` is from Almost Stochastic Order: below 0.5,
# `agf` is more often better than worse. `epsilon_back` says the same about the other method.

# %%
tests = scores.significance("agf")
top = tests[(tests["metric"] == "aopc") & (tests["order"] == "top")].set_index("other")
top[["difference", "low", "high", "p_holm", "epsilon", "epsilon_back"]].round(2)

# %% [markdown]
# So on this model `agf` is better than random scores, and worse than `attcat` and `gradsam`. With 60 texts, there is
# no significant difference from `af` and `rollout`: these intervals contain 0.
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
# Here `agf` gives all tokens scores of the same order, and the name of the film's star the largest. The other two
# methods single out "bad". Masking that one word changes the answer, so this text counts against `agf`.
#
# `scores.save("results")` keeps the numbers of every text, and `gaflow.evaluation.Evaluation.load("results")` reads
# them again.
