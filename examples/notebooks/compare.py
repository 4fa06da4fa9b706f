# %% [markdown]
# # Compare methods
#
# Which methods are there, what do they cost, and how far do they agree? Most methods need one trace of the model, a
# forward and a backward pass, and share it. The others run the model more often: see the column `passes`.

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
# Methods have different units, so the shades of each row are relative to its largest score. Blue is against the
# class. `gaflow.html.page(found, "compare.html")` writes this as a page, and `gaflow compare "..."` shows it in the
# terminal.
#
# ## How far do they agree?
#
# Rank correlation of the words' scores, by method:

# %%
words = pd.DataFrame({name: [word.score for word in att.words()] for name, att in attributions.items()})
words.rank().corr().round(1)

# %% [markdown]
# Agreement is not truth. To find the method that is most faithful to a model, you have to measure: for example, mask
# the words that a method calls important.
#
# ## Settings
#
# A name stands for a method as it was published. Pass a settings object to change something, or your own
# information tensor: any function of attention and gradient that gives each layer non-negative capacities.


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
