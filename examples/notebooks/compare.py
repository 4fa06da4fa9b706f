# %% [markdown]
# # Compare methods
#
# Nineteen methods explain the same prediction. All that need no more share one trace of the model, a forward
# and a backward pass; the others say how often they ask it.

# %%
import pandas as pd

import gaflow
from gaflow import plots
from gaflow.methods import IntegratedGradients

pd.DataFrame({name: vars(method.info) for name, method in gaflow.METHODS.items()}).T[
    ["family", "signed", "class_specific", "passes"]
]

# %%
explainer = gaflow.Explainer()
text = "although this dog is not cute, it is very smart."
attributions = explainer.compare(
    text, methods=["peeled_flow", "relevance_flow", "agf", "af", "rollout", "attcat", "transatt", "ig", "random"]
)
plots.compare(attributions)

# %% [markdown]
# Each method has a unit of its own, so each row is shaded by its own largest score; blue is against the
# class. `page(found, "compare.html")` of `gaflow.html` makes a page of it, and `gaflow compare "..."` shows it
# in the terminal.
#
# ## How far do they agree?
#
# Rank correlation of the words' scores, by method:

# %%
words = pd.DataFrame({name: [word.score for word in att.words()] for name, att in attributions.items()})
words.rank().corr().round(1)

# %% [markdown]
# Agreement is not truth. Which method is most faithful to a model has to be measured, for example by masking
# the words that it calls important.
#
# ## Settings
#
# A name stands for a method as published. A settings object says what differs, and so does an information
# tensor of your own: any function of attention and gradient that gives each layer non-negative capacities.


# %%
def strongest(attention, gradient):
    """The head that counts most, instead of the mean over heads: (b, l, h, t, t) twice -> (b, l, t, t)."""
    return (attention * gradient).relu().amax(2)


variants = explainer.compare(
    text,
    methods=[
        "agf",
        strongest,
        gaflow.FlowMethod("agf", targets="ordinary"),  # nothing flows to [CLS] and [SEP]
        gaflow.FlowMethod("agf", layer="all"),  # the flow through all layers, not only the input
        IntegratedGradients(steps=20),
    ],
)
for name, att in variants.items():
    print(f"{name:26}", *(word.text for word in att.top(4)), sep="  ")

# %%
variants["strongest"]
