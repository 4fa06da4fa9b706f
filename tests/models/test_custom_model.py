from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn
from transformers import BertModel

import gaflow
from gaflow.errors import ArgumentError, ArgumentTypeError, UnsupportedModelError
from tests.support.task_models import bert

TEXTS = ["although this dog is not cute, it is very smart.", "a smart dog"]


class Classifier(nn.Module):
    """The computation of BertForSequenceClassification in a module that returns logits alfirst."""

    def __init__(self, original, answer=lambda logits: logits):
        super().__init__()
        self.backbone = original.bert
        self.head = original.classifier
        self.answer = answer

    def forward(self, input_ids, attention_mask=None, token_type_ids=None):
        encoded = self.backbone(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return self.answer(self.head(encoded.pooler_output))


class Tagger(nn.Module):
    """The computation of BertForTokenClassification, with keywords and an encoder that returns a tuple."""

    def __init__(self, original):
        super().__init__()
        self.backbone = original.bert
        self.head = original.classifier

    def forward(self, **inputs):
        (states,) = self.backbone(**inputs, return_dict=False)
        return {"logits": self.head(states), "loss": None}


def labels_of(model):
    return list(model.config.id2label.values())


@pytest.fixture
def original():
    return bert("text-classification")


@pytest.mark.parametrize("method", ["agf", "peeled_flow", "attcat", "partial_lrp", "occlusion", "ig"])
def test_a_custom_model_is_explained_as_the_same_computation_in_transformers(original, method):
    model, tokenizer = original
    custom = gaflow.CustomModel(Classifier(model), labels_of(model))
    expected = gaflow.Explainer(model, tokenizer)(TEXTS, method)
    explained = gaflow.Explainer(custom, tokenizer)(TEXTS, method)
    for first, second in zip(expected, explained, strict=True):
        assert first.label == second.label
        assert first.probability == second.probability
        np.testing.assert_array_equal(first.scores, second.scores)


def test_a_tagger_is_explained_as_the_same_computation_in_transformers():
    model, tokenizer = bert("token-classification")
    custom = gaflow.CustomModel(Tagger(model), labels_of(model), task="token-classification")
    expected = gaflow.Explainer(model, tokenizer)(TEXTS[0])
    explained = gaflow.Explainer(custom, tokenizer)(TEXTS[0])
    assert (explained.label, explained.method) == (expected.label, "peeled_flow")
    np.testing.assert_array_equal(explained.scores, expected.scores)


@pytest.mark.parametrize(
    "answer",
    [lambda x: (x, "more"), lambda x: {"logits": x}, lambda x: type("Output", (), {"logits": x})()],
    ids=["tuple", "mapping", "object"],
)
def test_logits_are_found_in_what_a_module_returns(original, answer):
    model, tokenizer = original
    plain = gaflow.Explainer(gaflow.CustomModel(Classifier(model), labels_of(model)), tokenizer)(TEXTS[0], "agf")
    custom = gaflow.CustomModel(Classifier(model, answer), labels_of(model))
    assert gaflow.Explainer(custom, tokenizer)(TEXTS[0], "agf").output == plain.output


def test_the_module_sees_the_output_that_it_asked_for_and_keeps_no_hooks(original):
    model, tokenizer = original
    module = Classifier(model)
    fields_passed_on = []
    inner = module.backbone.forward
    custom = gaflow.CustomModel(module, labels_of(model))

    class Watching(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = module.backbone

        def forward(self, input_ids, attention_mask):
            named = self.backbone(input_ids, attention_mask)
            fields_passed_on.append(list(named))
            return module.head(named.pooler_output)

    gaflow.Explainer(gaflow.CustomModel(Watching(), labels_of(model)), tokenizer)(TEXTS[0], "agf")
    with torch.no_grad():
        alone = model.bert(**tokenizer(TEXTS[0], return_tensors="pt"))
    assert fields_passed_on
    assert all(fields == list(alone) for fields in fields_passed_on)
    assert module.backbone.forward == inner
    assert not module.backbone._forward_hooks
    assert not module.backbone._forward_pre_hooks
    assert custom.encoder is model.bert


def test_a_call_of_your_own_serves_modules_with_other_names(original):
    model, tokenizer = original

    class OtherNames(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Classifier(model)

        def forward(self, ids, mask):
            return self.inner(ids, mask)

    module = OtherNames()
    custom = gaflow.CustomModel(module, labels_of(model), call=lambda x: module(x["input_ids"], x["attention_mask"]))
    expected = gaflow.Explainer(model, tokenizer)(TEXTS[0], "agf")
    assert gaflow.Explainer(custom, tokenizer)(TEXTS[0], "agf").output == expected.output
    with pytest.raises(UnsupportedModelError, match="call"):
        gaflow.Explainer(gaflow.CustomModel(module, labels_of(model)), tokenizer)(TEXTS[0], "agf")


def test_several_labels_at_once_have_probabilities_of_a_sigmoid(original):
    model, tokenizer = original
    custom = gaflow.CustomModel(Classifier(model), labels_of(model), multi_label=True)
    att = gaflow.Explainer(custom, tokenizer)(TEXTS[0], "agf")
    assert att.probability == pytest.approx(1 / (1 + np.exp(-att.output)))


def test_batches_windows_and_evaluation_work(original):
    model, tokenizer = original
    explainer = gaflow.Explainer(gaflow.CustomModel(Classifier(model), labels_of(model)), tokenizer)
    together = explainer(TEXTS, "agf")
    alone = [explainer(text, "agf") for text in TEXTS]
    for first, second in zip(together, alone, strict=True):
        np.testing.assert_allclose(first.scores, second.scores, rtol=1e-4, atol=1e-7)
    assert gaflow.evaluate(explainer, TEXTS, methods=["agf"]).methods == ("agf", "random")
    windows = explainer(TEXTS[0], "agf", windows=gaflow.Windows(size=8))
    assert float(windows.diagnostics["windows"]) > 1


def test_the_weights_of_the_encoder_are_there_once(original):
    model, _ = original
    custom = gaflow.CustomModel(Classifier(model), labels_of(model))
    counted = Counter(name.removeprefix("module.backbone.") for name, _ in custom.named_parameters())
    assert set(counted.values()) == {1}
    assert sum(p.numel() for p in custom.parameters()) == sum(p.numel() for p in model.parameters())


def test_what_cannot_be_explained_is_refused(original):
    model, tokenizer = original
    names = labels_of(model)
    module = Classifier(model)
    with pytest.raises(ArgumentTypeError, match="CustomModel"):
        gaflow.Explainer(module, tokenizer)
    with pytest.raises(ArgumentError, match="labels"):
        gaflow.Explainer(gaflow.CustomModel(module, [*names, "another"]), tokenizer)(TEXTS[0])
    for labels in ([], [names[0]] * 2):
        with pytest.raises(ArgumentError, match="labels"):
            gaflow.CustomModel(module, labels)
    with pytest.raises(ArgumentError, match="task"):
        gaflow.CustomModel(module, names, task="fill-mask")
    with pytest.raises(UnsupportedModelError, match="Linear"):
        gaflow.CustomModel(nn.Linear(2, 2), names)
    with pytest.raises(ArgumentError, match="encoder"):
        gaflow.CustomModel(module, names, encoder=BertModel(model.config))
    with pytest.raises(ArgumentError, match="encoder"):
        gaflow.CustomModel(nn.ModuleList([model.bert, BertModel(model.config)]), names)
    with pytest.raises(UnsupportedModelError, match="logits"):
        gaflow.Explainer(gaflow.CustomModel(Classifier(model, lambda _: "none"), names), tokenizer)(TEXTS[0], "agf")


@pytest.mark.parametrize("method", ["agf", "relevance_flow", "lime"])
def test_logits_that_are_complex_numbers_are_refused(original, method):
    model, tokenizer = original
    custom = gaflow.CustomModel(Classifier(model, lambda logits: logits.to(torch.complex64)), labels_of(model))
    with pytest.raises(UnsupportedModelError, match="complex"):
        gaflow.Explainer(custom, tokenizer)(TEXTS[0], method)


def test_logits_of_texts_are_no_tags(original):
    model, tokenizer = original
    custom = gaflow.CustomModel(Classifier(model), labels_of(model), task="token-classification")
    for explain in (gaflow.Explainer(custom, tokenizer), gaflow.Explainer(custom, tokenizer).predictions):
        with pytest.raises(UnsupportedModelError, match="shape"):
            explain(TEXTS[0])


def test_an_encoder_that_is_called_twice_is_refused(original):
    model, tokenizer = original

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Classifier(model)

        def forward(self, input_ids):
            return self.inner(input_ids) + self.inner(input_ids)

    with pytest.raises(UnsupportedModelError, match="2 times"):
        gaflow.Explainer(gaflow.CustomModel(Twice(), labels_of(model)), tokenizer)(TEXTS[0], "agf")
