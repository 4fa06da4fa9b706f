# %% [markdown]
# # Long texts
#
# A model has a maximum input length: 512 tokens for the model inside the package. What can you do with a longer text?

# %%
import gaflow

explainer = gaflow.Explainer()
scenes = " ".join(f"Scene {number} is set in room {number}." for number in range(1, 81))
text = f"A moving, beautiful film. {scenes} The end, though, is dull."
try:
    explainer(text, method="agf")
except gaflow.TextError as error:
    print(error)

# %% [markdown]
# ## Explain the beginning
#
# `truncation=True` cuts the text. The result says so.

# %%
att = explainer(text, method="attcat", truncation=True)
print("truncated:", att.truncated, "- tokens read:", len(att.tokens))

# %% [markdown]
# ## Explain all of it
#
# `windows=True` reads the whole text in overlapping windows. Every token is read by the same number of windows.
# Scores and logits are weighted
# means over the windows.

# %%
att = explainer(text, method="attcat", windows=True)
print("explained:", att.output_name)
print("words:", len(att.words()), "- sentences:", len(att.sentences()))

# %% [markdown]
# Sentences are easier to read than 600 words. These count most, for and against:

# %%
sentences = sorted(att.sentences(), key=lambda sentence: sentence.score)
print("most for:    ", sentences[-1].text)
print("most against:", sentences[0].text)

# %% [markdown]
# ## Choose the windows
#
# Smaller windows need less memory. `reads=3` reads every token three times; `reads=1` cuts without overlap.

# %%
for windows in (gaflow.Windows(size=128), gaflow.Windows(size=128, reads=3), gaflow.Windows(size=128, reads=1)):
    att = explainer(text, method="attcat", windows=windows)
    print(f"{windows}: {att.output_name}")

# %% [markdown]
# On the command line: `gaflow explain - --windows --sentences < long.txt`. The page [Long texts](../long_texts.md)
# has the
# formulas.
