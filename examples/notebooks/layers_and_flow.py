# %% [markdown]
# # Layers and flow
#
# The explanation is a flow from the output to the input, through every layer of attention. The flow that reaches an
# input token is its score. This notebook looks at the layers in between, and at the freedom that a plain maximum flow
# would leave.

# %%
import torch

import gaflow

explainer = gaflow.Explainer()
att = explainer("although this dog is not cute, it is very smart.", method="agf")
att.flow

# %% [markdown]
# ## Layer by layer
#
# `att.layers` holds the flow through every token of every node layer: row 0 is the input, the last row the
# output. Each row sums to the same value. Here the output is [CLS] alone, which is all that the classifier
# reads.

# %%
att.plot_layers()

# %% [markdown]
# Scores are those of the input layer. In higher layers, a token stands for everything that it has collected so far:

# %%
for layer in range(len(att.layers) - 1):
    print(layer, *(f"{word.text} {word.score / att.scores.sum():.0%}" for word in att.at_layer(layer).top(3)), sep="  ")

# %% [markdown]
# ## The flow itself
#
# The wider an edge, the more flow it carries. The picture has the 200 strongest edges. The widest routes have numbers.
# Crossed edges belong to the minimum cut: they limit the flow.

# %%
att.plot_flow(edges=200)

# %%
for route in gaflow.routes(att.flow, k=3):
    print(f"{route.share:.1%}", " <- ".join(att.tokens[k] for k in route.tokens))

cut = gaflow.min_cut(att.flow)
print(f"\nminimum cut: {len(cut.edges)} edges, most of it from node layer {cut.bottleneck + 1} to {cut.bottleneck}")
for layer, i, j, capacity in cut.edges[:3]:
    print(f"from {att.tokens[i]!r} in layer {layer + 1} to {att.tokens[j]!r} in layer {layer}: {capacity:.5f}")

# %% [markdown]
# ## What a plain maximum flow leaves open
#
# A network has many maximum flows. Over all of them, the score of a token can be anything within a range. The log
# barrier picks one flow, and its solution is unique.

# %%
low, high = gaflow.score_ranges(att.flow.capacity[0])
for token, least, score, most in zip(att.tokens, low.tolist(), att.scores, high.tolist(), strict=True):
    print(f"{token:9} {least:.5f} <= {score:.5f} <= {most:.5f}")

# %% [markdown]
# The scores are Shapley values of an additive game (Theorem 3.1 of the paper; the same holds for any scores). You can
# check the axioms on the result, in every layer:

# %%
report = gaflow.axioms(att)
print("all hold:", report.ok, {axiom: residual < 1e-12 for axiom, residual in report.residuals.items()})

# %% [markdown]
# ## Where flow comes from and goes to
#
# With `af`, flow starts at every output token, even at those that the classifier never reads. `sources="head"` takes
# only the rows that it reads:

# %%
everywhere = explainer(att.text, method="af")
head = explainer(att.text, method=gaflow.FlowMethod("af", sources="head"))
for att in (everywhere, head):
    best = att.at_layer(-2).top(3)  # just below the output
    print(
        f"{att.method:20} flow {att.scores.sum():.2f}",
        *(f"{word.text} {word.score:.2f}" for word in best),
        sep="  ",
    )

# %% [markdown]
# ## Capacities of any origin
#
# The solver needs no model: `gaflow.solve` takes any non-negative tensor of shape (layers, tokens, tokens), or a batch
# of them.

# %%
capacities = torch.tensor([[[2.0, 1.0], [0.0, 1.0]], [[1.0, 1.0], [1.0, 3.0]]])
flow = gaflow.solve(capacities)
print(flow)
print("through the nodes, input first:")
print(flow.through()[0].numpy().round(3))
