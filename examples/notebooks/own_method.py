# %% [markdown]
# # Evaluate your own method
#
# You have an idea for an attribution method. Is it better than chance, and better than the methods that exist? This
# notebook adds two
# methods and measures them on 60 film reviews from SST-2.

# %%
from dataclasses import dataclass

import pandas as pd

import gaflow
from gaflow import plots
from gaflow.methods import Scores

explainer = gaflow.Explainer()
reviews = pd.read_csv("../data/reviews.csv")


# %% [markdown]
# ## A flow with your own capacities
#
# A function of attention and gradient, (b, l, h, t, t) each, gives the capacities of the network, (b, l, t, t):


# %%
def strongest(attention, gradient):
    """The head that matters most, instead of the mean over heads."""
    return (attention * gradient).relu().amax(2)


# %% [markdown]
# ## Any other method
#
# A method is an object with a `name` that turns a trace of the model into scores, (b, t). This one takes the length
# of each token's gradient:


# %%
@dataclass(frozen=True)
class GradientNorm:
    """The length of the gradient at the embedding of each token."""

    name: str = "gradient_norm"

    def __call__(self, trace):
        """Scores of a traced batch, 0 at padding."""
        gradient = trace.hidden_gradient[0]
        return Scores(gradient.norm(dim=-1) * trace.mask)


attributions = explainer.compare("a gripping film, despite the plot.", methods=["agf", strongest, GradientNorm()])
plots.compare(attributions)

# %% [markdown]
# ## Measure
#
# Mask the tokens that a method scores highest (`top`) or lowest (`bottom`). `aopc` is the probability that the model
# loses: it should be high for
# `top` and low for `bottom`. `srg` is the difference. A random control is always added.

# %%
scores = gaflow.evaluate(
    explainer,
    reviews["text"].tolist(),
    methods=["agf", "attcat", strongest, GradientNorm()],
    levels=(10, 30, 50, 70, 90),
    eraser=False,
)
scores.table()[["aopc_top", "aopc_bottom", "srg"]].round(2)

# %% [markdown]
# ## Is the difference significant?
#
# Compare your method with each of the others, text by text. If the interval from `low` to `high` holds 0, these texts
# do not tell the two
# apart.

# %%
compared = scores.significance("gradient_norm")
top = compared[(compared["metric"] == "aopc") & (compared["order"] == "top")].set_index("other")
top[["difference", "low", "high", "p_holm"]].round(2)

# %% [markdown]
# 60 texts and one model are enough to try the machinery, not to publish a claim. Use `gaflow bench` for that: several
# data sets, several
# replacements, and a report. Scores that another library computed go in as `evaluate(..., scores={"name": [...]})`.
