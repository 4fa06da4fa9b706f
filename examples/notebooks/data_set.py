# %% [markdown]
# # A data set
#
# Explain many texts once, store the result, and analyse it as often as you like. The data are 60 film reviews from
# SST-2.
# On the command line this is `gaflow attribute reviews.csv -o why --label-column label`.

# %%
import pandas as pd

import gaflow
from gaflow.data import open_data
from gaflow.jobs import attribute, read_attributions

explainer = gaflow.Explainer()
data = open_data("../data/reviews.csv", text_column="text", label_column="label")
done = attribute(explainer, data, "why", ["agf", "attcat"], shard_size=20)
print(f"{done.texts} texts, {done.errors} errors, finished: {done.finished}")

# %% [markdown]
# ## What was written
#
# Parquet files with one row per text and method, and a manifest that describes model, data and settings. If the run
# is interrupted, call
# the same function again: finished files are kept.

# %%
again = attribute(explainer, data, "why", ["agf", "attcat"], shard_size=20)
print("finished at once:", again.finished)
table = pd.read_parquet("why/part-00000.parquet")
table[["row", "method", "label", "probability", "gold_label"]].round(2).head()

# %% [markdown]
# ## Read it back
#
# Each stored row becomes an attribution again, with words, pages and figures:

# %%
stored = next(row for row in read_attributions("why") if row.method == "attcat")
stored.attribution()

# %% [markdown]
# ## Which words count over the whole data set?
#
# Average the share of each word over the texts that contain it:

# %%
rows = []
for stored in read_attributions("why"):
    if stored.method == "attcat":
        for word in stored.attribution().words():
            share = word.score / max(abs(stored.attribution().scores))
            rows.append({"word": word.text, "class": stored.prediction, "share": share})
words = pd.DataFrame(rows).groupby(["class", "word"])["share"].agg(["mean", "count"])
words[words["count"] >= 3].sort_values("mean", ascending=False).round(1).groupby("class").head(4)

# %% [markdown]
# With so few texts this is an anecdote. To see which method to trust, go on with
# [Which method is faithful?](benchmark.ipynb)
