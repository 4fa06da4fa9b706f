# %% [markdown]
# # Entities and answers
#
# gaflow explains taggers and question answering, too. This notebook needs no download: it trains two tiny models on
# made-up sentences first, which takes a few seconds. They know a dozen names and cities and nothing else. With your
# own model you write `gaflow.Explainer("org/name")` and skip the training.

# %%
import itertools

import torch
from transformers import BertConfig, BertForQuestionAnswering, BertForTokenClassification

import gaflow

NAMES = ["anna", "ben", "clara", "david", "emma", "frank"]
CITIES = ["paris", "rome", "london", "berlin", "madrid", "oslo"]
VERBS = ["lives in", "went to", "likes", "came from"]
sentences = [f"{name} {verb} {city}." for name, verb, city in itertools.product(NAMES, VERBS, CITIES)]

tokenizer = gaflow.Explainer().tokenizer  # that of the model inside the package
SIZE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}


def train(model, inputs, steps=60):
    """Fit a model to a batch that holds all examples."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        loss = model(**inputs).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


# %% [markdown]
# ## Entities
#
# A tagger gives each token a tag. The names of persons are PER, cities are LOC, everything else is O.

# %%
torch.manual_seed(0)
TAGS = ["O", "B-PER", "B-LOC"]
inputs = tokenizer(sentences, padding=True, return_tensors="pt")
words = [[tokenizer.decode(token).strip() for token in row] for row in inputs["input_ids"].tolist()]
inputs["labels"] = torch.tensor([[1 * (word in NAMES) + 2 * (word in CITIES) for word in row] for row in words])
config = BertConfig(vocab_size=len(tokenizer), id2label=dict(enumerate(TAGS)), **SIZE)
tagger = gaflow.Explainer(train(BertForTokenClassification(config), inputs), tokenizer)

text = "emma went to oslo."
for entity in tagger.predictions(text, 2):
    print(f"{entity.label:12} {entity.probability:.0%}")

# %% [markdown]
# Why is "oslo" a city? Name the word and the tag:

# %%
tagger(text, target=("oslo", "B-LOC"))

# %% [markdown]
# `target="oslo=LOC"` says the same, and also works for entities of several tokens. "B-LOC minus B-PER" asks why one
# tag rather than the other.

# %%
att = tagger(text, target=("oslo", "B-LOC minus B-PER"))
print(att.label, "by", att.output_name)
print("strongest word:", att.top(1)[0].text)

# %% [markdown]
# ## Answers
#
# The input is a pair: the question and the context. The model marks where the answer starts and ends.

# %%
torch.manual_seed(0)
questions, starts = [], []
for sentence in sentences:
    for question, answers in (("who?", NAMES), ("where?", CITIES)):
        questions.append((question, sentence))
        starts.append(answers)
inputs = tokenizer([q for q, _ in questions], [c for _, c in questions], padding=True, return_tensors="pt")
words = [[tokenizer.decode(token).strip() for token in row] for row in inputs["input_ids"].tolist()]
places = [next(k for k, word in enumerate(row) if word in answers) for row, answers in zip(words, starts, strict=True)]
inputs["start_positions"] = inputs["end_positions"] = torch.tensor(places)
model = BertForQuestionAnswering(BertConfig(vocab_size=len(tokenizer), **SIZE))
reader = gaflow.Explainer(train(model, inputs, steps=80), tokenizer)

for question in ("who?", "where?"):
    att = reader((question, "clara likes berlin."))
    print(f"{question:7} {att.label:7} explained: {att.output_name}")

# %%
reader(("where?", "clara likes berlin."))

# %% [markdown]
# Words of the question have segment 0, words of the context segment 1. You can explain another answer than the model's:

# %%
other = reader(("where?", "clara likes berlin."), target="berlin minus clara")
print(other.label)
for word in sorted(other.words(), key=lambda word: -abs(word.score))[:2]:
    print(f"segment {word.segment}: {word.text}")
