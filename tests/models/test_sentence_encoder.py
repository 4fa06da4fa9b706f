import json
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoModel, BertConfig, BertForSequenceClassification

import gaflow
from gaflow.errors import ArgumentError, GaflowError, GaflowWarning, UnsupportedModelError
from gaflow.models.sentence_encoder import POOLINGS, Dense
from tests.support.models import SIZE, wordpiece
from tests.support.sentence_folders import write_folder
from tests.support.task_models import bert, sentence_encoder

PAIR = ("although this dog is not cute, it is very smart.", "a smart dog")


def states(encoder, tokenizer, text):
    """The last hidden states (t, d) of one text, from a plain call."""
    with torch.no_grad():
        return encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].double().numpy()


def pooled(hidden, pooling):
    count = len(hidden)
    ranks = np.arange(1, count + 1)[:, None]
    return {
        "mean": hidden.mean(0),
        "cls": hidden[0],
        "max": hidden.max(0),
        "lasttoken": hidden[-1],
        "weightedmean": (hidden * ranks).sum(0) / ranks.sum(),
        "mean_sqrt_len_tokens": hidden.sum(0) / np.sqrt(count),
    }[pooling]


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_output_is_the_similarity_of_the_pooled_hidden_states(pooling):
    encoder, tokenizer = bert("similarity")
    explainer = gaflow.Explainer(gaflow.SentenceEncoder(encoder, pooling), tokenizer)
    a, b = (pooled(states(encoder, tokenizer, text), pooling) for text in PAIR)
    assert explainer(PAIR, "agf").output == pytest.approx(cosine(a, b), abs=1e-6)
    assert explainer(PAIR, "agf", "dot").output == pytest.approx(a @ b, rel=1e-5)


def test_several_poolings_are_concatenated_and_dense_layers_and_a_norm_follow():
    encoder, tokenizer = bert("similarity")
    linear = nn.Linear(64, 5)
    model = gaflow.SentenceEncoder(encoder, ["mean", "max"], dense=[Dense(linear, nn.Tanh())], normalize=True)
    embeddings = []
    for text in PAIR:
        hidden = states(encoder, tokenizer, text)
        both = torch.tensor(np.concatenate([pooled(hidden, "mean"), pooled(hidden, "max")])).float()
        embeddings.append(torch.tanh(linear(both)).detach().double().numpy())
    att = gaflow.Explainer(model, tokenizer)(PAIR, "agf", "dot")
    assert att.output == pytest.approx(cosine(*embeddings), abs=1e-6)
    assert att.token_matches is None  # the activation mixes tokens


def test_a_plain_encoder_gets_the_mean_and_says_so():
    encoder, tokenizer = bert("similarity")
    plain = gaflow.Explainer(encoder, tokenizer, task="similarity")(PAIR, "agf")
    pooled = gaflow.Explainer(gaflow.SentenceEncoder(encoder, "mean"), tokenizer)(PAIR, "agf")
    assert plain.output == pooled.output
    assert str(plain.diagnostics["pooling"]).startswith("mean")
    assert "pooling" not in pooled.diagnostics


@pytest.mark.parametrize(
    "arguments", [{"pooling": "median"}, {"measure": "euclidean"}, {"max_length": 0}], ids=lambda a: next(iter(a))
)
def test_settings_that_mean_nothing_are_refused(arguments):
    encoder, _ = bert("similarity")
    with pytest.raises(ArgumentError, match=next(iter(arguments))):
        gaflow.SentenceEncoder(encoder, **arguments)


def test_an_encoder_is_a_transformers_model():
    with pytest.raises(ArgumentError, match="encoder"):
        gaflow.SentenceEncoder(nn.Linear(2, 2))


# folders in the layout of sentence-transformers


@pytest.mark.parametrize("encoder_path", ["", "0_Transformer"])
def test_a_folder_says_how_its_embeddings_are_made(tmp_path, encoder_path):
    dense = {
        "in_features": 32,
        "out_features": 3,
        "bias": True,
        "activation_function": "torch.nn.modules.activation.Tanh",
    }
    encoder, tokenizer = write_folder(
        tmp_path,
        modules=[("Pooling", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}), ("Dense", dense)],
        settings={"similarity_fn_name": "dot"},
        encoder_settings={"max_seq_length": 9, "do_lower_case": False},
        encoder_path=encoder_path,
    )
    linear = nn.Linear(32, 3)
    weights = {f"linear.{name}": weight.detach() for name, weight in linear.named_parameters()}
    save_file(weights, tmp_path / "2_Dense" / "model.safetensors")
    explainer = gaflow.Explainer(tmp_path, device="cpu")
    assert (explainer.task, explainer.model.pooling, explainer.runner.limit) == ("similarity", ("cls",), 9)
    embeddings = []
    for text in ("a smart dog", "dog"):
        cls = torch.tensor(states(encoder, tokenizer, text)[0]).float()
        embeddings.append(torch.tanh(linear(cls)).detach().double().numpy())
    att = explainer(("a smart dog", "dog"), "agf")
    assert att.output == pytest.approx(embeddings[0] @ embeddings[1], rel=1e-5)
    assert att.target == "dot"


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"pooling_mode": "lasttoken"}, ("lasttoken",)),
        ({"pooling_mode": ["mean", "max"]}, ("mean", "max")),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, ("mean", "max")),
        ({"pooling_mode_weightedmean_tokens": True}, ("weightedmean",)),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, ("mean_sqrt_len_tokens",)),
    ],
)
def test_older_and_newer_folders_name_their_pooling_differently(tmp_path, config, names):
    write_folder(tmp_path, modules=[("Pooling", config), ("Normalize", {})])
    model = gaflow.Explainer(tmp_path, device="cpu").model
    assert (model.pooling, model.normalize, model.pooling_by_default) == (names, True, False)


@pytest.mark.parametrize(
    ("modules", "reason"),
    [
        ([("Pooling", {"pooling_mode": "median"})], "median"),
        ([("Pooling", {})], "no mode"),
        ([("Pooling", {"pooling_mode": "mean"}), ("LSTM", {})], "LSTM"),
        ([("Normalize", {}), ("Pooling", {"pooling_mode": "mean"})], "Normalize, Pooling"),
        ([], "nothing"),
        ([("Pooling", {"pooling_mode": "mean"}), ("Dense", {"in_features": 32, "out_features": 2})], "no weights"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_the_reason(tmp_path, modules, reason):
    write_folder(tmp_path, modules=modules)
    with pytest.raises(UnsupportedModelError, match=reason):
        gaflow.Explainer(tmp_path, device="cpu")


@pytest.mark.parametrize("path", ["../elsewhere", "/etc"])
def test_a_folder_names_no_files_outside(tmp_path, path):
    write_folder(tmp_path, modules=[("Pooling", {"pooling_mode": "mean"})])
    entries = json.loads((tmp_path / "modules.json").read_text())
    entries[1]["path"] = path
    (tmp_path / "modules.json").write_text(json.dumps(entries))
    with pytest.raises(UnsupportedModelError, match="outside"):
        gaflow.Explainer(tmp_path, device="cpu")


@pytest.mark.parametrize("content", ["{", "[{}]", "[1]", '{"a": 1}'])
def test_a_damaged_list_of_modules_is_an_error_in_one_line(tmp_path, content):
    write_folder(tmp_path, modules=[("Pooling", {"pooling_mode": "mean"})])
    (tmp_path / "modules.json").write_text(content)
    with pytest.raises(GaflowError) as caught:
        gaflow.Explainer(tmp_path, device="cpu")
    assert "\n" not in str(caught.value)


def test_an_activation_is_one_of_a_few_and_never_imported(tmp_path):
    dense = {"in_features": 32, "out_features": 2, "activation_function": "os.system"}
    write_folder(tmp_path, modules=[("Pooling", {"pooling_mode": "mean"}), ("Dense", dense)])
    linear = nn.Linear(32, 2)
    save_file(
        {f"linear.{k}": v.detach() for k, v in linear.named_parameters()}, tmp_path / "2_Dense" / "model.safetensors"
    )
    with pytest.raises(UnsupportedModelError, match="system"):
        gaflow.Explainer(tmp_path, device="cpu")


def test_what_a_model_wants_done_to_texts_is_a_warning(tmp_path):
    settings = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    write_folder(tmp_path, modules=[("Pooling", {"pooling_mode": "mean"})], settings=settings)
    with pytest.warns(GaflowWarning, match="query: "):
        gaflow.Explainer(tmp_path, device="cpu")


def test_a_measure_that_is_no_product_is_refused(tmp_path):
    settings = {"similarity_fn_name": "euclidean"}
    write_folder(tmp_path, modules=[("Pooling", {"pooling_mode": "mean"})], settings=settings)
    with pytest.raises(UnsupportedModelError, match="euclidean"):
        gaflow.Explainer(tmp_path, device="cpu")


def test_an_encoder_of_a_folder_without_modules_is_loaded_for_similarity_only_if_asked(tmp_path):
    encoder, tokenizer = bert("similarity")
    encoder.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    explainer = gaflow.Explainer(tmp_path, task="similarity", device="cpu")
    assert explainer.model.pooling_by_default
    with pytest.raises(UnsupportedModelError, match="random"):
        gaflow.Explainer(tmp_path, device="cpu")


def test_a_cross_encoder_is_a_classifier_of_pairs(tmp_path):
    config = BertConfig(**SIZE, vocab_size=len(wordpiece()), id2label={0: "relevance"})
    model = BertForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path)
    wordpiece().save_pretrained(tmp_path)
    explainer = gaflow.Explainer(tmp_path, device="cpu")
    assert explainer.task == "text-classification"
    with torch.no_grad():
        logit = model(**wordpiece()(*PAIR, return_tensors="pt")).logits.item()
    assert explainer(PAIR, "agf").output == pytest.approx(logit, abs=1e-6)
    with pytest.raises(UnsupportedModelError, match="not for similarity"):
        gaflow.Explainer(model, wordpiece(), task="similarity")


def write_cross_encoder(path, kinds=("Transformer",), **settings):
    """A folder as newer versions of sentence-transformers save a cross-encoder, and the logit of PAIR."""
    config = BertConfig(**SIZE, vocab_size=len(wordpiece()), id2label={0: "relevance"})
    model = BertForSequenceClassification(config).eval()
    model.save_pretrained(path)
    wordpiece().save_pretrained(path)
    module_settings: dict[str, Any] = {"model_type": "CrossEncoder", "activation_fn": "torch.nn.Sigmoid", **settings}
    (path / "config_sentence_transformers.json").write_text(json.dumps(module_settings))
    entries = []
    for number, kind in enumerate(kinds):
        folder = "" if number == 0 else f"{number}_{kind}"
        entries.append({"idx": number, "name": str(number), "path": folder, "type": f"sentence_transformers.{kind}"})
    (path / "modules.json").write_text(json.dumps(entries))
    with torch.no_grad():
        return model(**wordpiece()(*PAIR, return_tensors="pt")).logits.item()


def test_a_folder_with_the_modules_of_a_cross_encoder_is_a_classifier_of_pairs(tmp_path):
    logit = write_cross_encoder(tmp_path)
    explainer = gaflow.Explainer(tmp_path, device="cpu")
    assert explainer.task == "text-classification"
    assert explainer(PAIR, "agf").output == pytest.approx(logit, abs=1e-6)


def test_a_cross_encoder_with_a_prompt_says_so(tmp_path):
    write_cross_encoder(tmp_path, prompts={"query": "query: "}, default_prompt_name="query")
    with pytest.warns(GaflowWarning, match="query: "):
        gaflow.Explainer(tmp_path, device="cpu")


def test_a_cross_encoder_that_reads_the_logits_of_words_is_refused(tmp_path):
    write_cross_encoder(tmp_path, kinds=("Transformer", "LogitScore"))
    with pytest.raises(UnsupportedModelError, match="LogitScore"):
        gaflow.Explainer(tmp_path, device="cpu")


class _Module(nn.Module):
    def __init__(self, **attributes: Any):
        super().__init__()
        for name, value in attributes.items():
            setattr(self, name, value)

    def get_config_dict(self):
        return self.settings


def library_class(name, base):
    return type(name, (base,), {"__module__": "sentence_transformers.models"})


def test_an_object_of_the_library_is_taken_with_its_modules():
    encoder, tokenizer = bert("similarity")
    first = library_class("Transformer", _Module)(auto_model=encoder, max_seq_length=20, do_lower_case=False)
    pooling = library_class("Pooling", _Module)(settings={"pooling_mode": "max"})
    model = library_class("SentenceTransformer", nn.Sequential)(first, pooling, library_class("Normalize", _Module)())
    model.tokenizer = tokenizer
    explainer = gaflow.Explainer(model)
    assert explainer.model.encoder is encoder
    assert (explainer.task, explainer.runner.limit) == ("similarity", 20)
    a, b = (pooled(states(encoder, tokenizer, text), "max") for text in PAIR)
    assert explainer(PAIR, "agf").output == pytest.approx(cosine(a, b), abs=1e-6)
    model.truncate_dim = 8
    with pytest.raises(UnsupportedModelError, match="truncate_dim"):
        gaflow.Explainer(model)


def test_an_object_that_is_a_cross_encoder_is_taken_with_its_classifier():
    config = BertConfig(**SIZE, vocab_size=len(wordpiece()), id2label={0: "relevance"})
    classifier = BertForSequenceClassification(config).eval()
    encoder_class = library_class("CrossEncoder", nn.Sequential)
    reranker = encoder_class(library_class("Transformer", _Module)(auto_model=classifier))
    vars(reranker)["transformers_model"] = classifier  # a property in the library, and no module of its own
    reranker.tokenizer = wordpiece()
    assert gaflow.Explainer(reranker).model is classifier
    reranker.prompts = {"query": "query: "}
    reranker.default_prompt_name = "query"
    with pytest.warns(GaflowWarning, match="query: "):
        gaflow.Explainer(reranker)
    reranker.append(library_class("LogitScore", _Module)())
    with pytest.raises(UnsupportedModelError, match="LogitScore"):
        gaflow.Explainer(reranker)


def test_models_without_hidden_states_of_tokens_are_refused():
    class Silent(nn.Module):
        def __init__(self, encoder):
            super().__init__()
            self.encoder = encoder
            self.config = encoder.config

        def get_input_embeddings(self):
            return self.encoder.get_input_embeddings()

        def forward(self, input_ids, attention_mask=None, **_):
            return {"pooled": self.encoder(input_ids, attention_mask).pooler_output}

    encoder, tokenizer = bert("similarity")
    with pytest.raises(UnsupportedModelError, match="last_hidden_state"):
        gaflow.Explainer(Silent(encoder), tokenizer, task="similarity")(PAIR, "agf")


def test_the_loader_of_the_task_is_that_of_bare_models():
    assert type(bert("similarity")[0]) is type(AutoModel.from_config(sentence_encoder()[0].config))
