# %% [markdown]
# # Entities and answers
#
# gaflow also explains named-entity taggers and question answering. This notebook needs no download: it puts new heads
# on the encoder inside the package, and fits them to made-up sentences by least squares. The two models know a dozen
# names and cities and nothing else. For your own model, write `gaflow.Explainer("org/name")` and skip the fitting.

# %%
import itertools
from copy import deepcopy

import torch
from torch.nn.functional import one_hot
from transformers import BertForQuestionAnswering, BertForTokenClassification

import gaflow

NAMES = ["anna", "ben", "david", "emma", "frank", "mary"]
CITIES = ["paris", "rome", "london", "berlin", "chicago", "new york"]
VERBS = ["lives in", "went to", "likes", "came from"]
facts = list(itertools.product(NAMES, VERBS, CITIES))

built_in = gaflow.Explainer()
tokenizer = built_in.tokenizer


def fit(model, head, inputs, targets):
    """Give a model the built-in encoder, and fit its head to targets of 0 and 1 for each token."""
    model.bert.load_state_dict(built_in.model.bert.state_dict(), strict=False)
    model.eval()
    with torch.no_grad():
        real = inputs["attention_mask"].bool()
        states = model.bert(**inputs).last_hidden_state[real].double()
        states = torch.cat([states, torch.ones_like(states[:, :1])], 1)
        logits = 20 * targets[real].double() - 10
        weights = torch.linalg.solve(states.T @ states + 0.1 * torch.eye(states.shape[1]), states.T @ logits)
        head.weight.copy_(weights[:-1].T)
        head.bias.copy_(weights[-1])
    return gaflow.Explainer(model, tokenizer)


def words_of(inputs):
    """The tokens of each text; every word of these sentences is one token."""
    return [[tokenizer.decode(token).strip() for token in row] for row in inputs["input_ids"].tolist()]


# %% [markdown]
# ## Entities
#
# A tagger gives each token a tag. Persons are PER, cities are LOC, and everything else is O. The first token of an
# entity has B-, and the others have I-.

# %%
LABELS = ["O", "B-PER", "B-LOC", "I-LOC"]
TAGS = dict.fromkeys(NAMES, "B-PER") | {city.split()[0]: "B-LOC" for city in CITIES} | {"york": "I-LOC"}
inputs = tokenizer([f"{name} {verb} {city}." for name, verb, city in facts], padding=True, return_tensors="pt")
tags = torch.tensor([[LABELS.index(TAGS.get(word, "O")) for word in row] for row in words_of(inputs)])
config = deepcopy(built_in.model.config)
config.id2label = dict(enumerate(LABELS))
model = BertForTokenClassification(config)
tagger = fit(model, model.classifier, inputs, one_hot(tags))

text = "emma went to new york."
for entity in tagger.predictions(text, 2):
    print(f"{entity.label:16} {entity.probability:.0%}")

# %% [markdown]
# gaflow found the whole entity "new york". Why is it a city? Name the entity and its type. The explained output is
# the mean logit of its tags, B-LOC and I-LOC:

# %%
tagger(text, target="new york=LOC")

# %% [markdown]
# You can also ask about one word and one tag. "B-LOC minus B-PER" asks why the tag is B-LOC rather than B-PER.

# %%
att = tagger(text, target=("new", "B-LOC minus B-PER"))
print(att.label, "by", att.output_name)
print("strongest word:", att.top(1)[0].text)

# %% [markdown]
# ## Answers
#
# The input is a pair: the question and the context. The model marks where the answer starts and ends.

# %%
pairs, answers = [], []
for name, verb, city in facts:
    for question, answer in (("who?", name), ("where?", city)):
        pairs.append((question, f"{name} {verb} {city}."))
        answers.append(answer.split())
inputs = tokenizer([q for q, _ in pairs], [c for _, c in pairs], padding=True, return_tensors="pt")
ends = torch.zeros(*inputs["input_ids"].shape, 2)  # for each token: does an answer start, or end, here?
for number, (row, answer) in enumerate(zip(words_of(inputs), answers, strict=True)):
    ends[number, row.index(answer[0]), 0] = 1
    ends[number, row.index(answer[-1]), 1] = 1
model = BertForQuestionAnswering(deepcopy(built_in.model.config))
reader = fit(model, model.qa_outputs, inputs, ends)

context = "david likes new york."
for question in ("who?", "where?"):
    att = reader((question, context))
    print(f"{question:7} {att.label:9} explained: {att.output_name}")

# %%
reader(("where?", context))

# %% [markdown]
# Words of the question have segment 0, and words of the context have segment 1. You can explain another answer than
# the model's, or the difference of two answers:

# %%
other = reader(("where?", context), target="new york minus david")
print(other.label)
for word in sorted(other.words(), key=lambda word: -abs(word.score))[:2]:
    print(f"segment {word.segment}: {word.text}")
