# %% [markdown]
# # Explain a text classifier
#
# One sentence, then another class, many texts, a table, a figure and a file. The model is the small sentiment
# model inside the package; `gaflow.Explainer("org/name")`, a folder, or a model with its tokenizer work the
# same way.

# %%
import gaflow

explainer = gaflow.Explainer()
att = explainer("although this dog is not cute, it is very smart.")
att

# %% [markdown]
# The stronger the shade, the more a token counts: orange for the class, blue against it. Hover over a token to see its
# score: the flow that reaches it for the class minus the flow against the class. The scores of all tokens, special ones
# included, sum to the difference of the two flows:

# %%
pro, contra = att.flow.value.item(), att.flow_against.value.item()
print(f"scores sum to {att.scores.sum():.6f}; flow for {pro:.6f}, against {contra:.6f}")
for word in sorted(att.words(), key=lambda word: -abs(word.score))[:4]:
    print(f"{word.text:10} {word.score:+.5f}")

# %% [markdown]
# How exact is that? The certificate says: every node passes on the flow that it gets, and no other flow can carry much
# more. It does not say that the explanation is right.

# %%
certificate = att.certificate
print("converged:", certificate.converged)
print("lost or made at a node: less than 1e-10 of the flow:", certificate.conservation < 1e-10)
print("short of the maximum: less than 1e-5 of it:", certificate.gap < 1e-5 * certificate.cut)

# %% [markdown]
# ## Another class, or the difference of two
#
# By default, gaflow explains the predicted class. Pass a label or a class index for another class. "A minus B" asks
# why one class and not the other.

# %%
why_not = explainer("a gripping film, despite the plot.", target="negative")
instead = explainer("a gripping film, despite the plot.", target="positive minus negative")
for att in (why_not, instead):
    print(f"{att.label}: {att.probability:.1%},", [word.text for word in att.top(2)])

# %% [markdown]
# The default, `peeled_flow`, runs the model five times. The paper's `agf` runs it once. Its scores are never negative:
# they say how much a token counts, not whether for or against.

# %%
explainer("a gripping film, despite the plot.", method="agf")

# %% [markdown]
# ## Many texts
#
# Pass a list, and gaflow explains it in batches and keeps the order. A pair of texts is a tuple.

# %%
reviews = ["a gripping film.", "the plot is thin and the jokes never land.", "not bad at all!", "slow, but lovely"]
for att in explainer(reviews, batch_size=16):
    print(f"{att.label:8} {att.probability:5.1%}  {att.text:45} {[word.text for word in att.top(2)]}")

# %% [markdown]
# ## As a table, as a figure, as a file

# %%
att.to_pandas(words=True).round({"score": 5}).head()

# %%
att.plot(words=True)

# %%
att.save("why.safetensors")
att.to_html("why.html")  # one page that needs nothing else
att.plot().savefig("why.pdf")  # or .svg, .png
gaflow.load("why.safetensors") == att
