import copy
import warnings
from dataclasses import dataclass

import pytest
import torch

import gaflow
from gaflow.errors import Argument, GaflowWarning, JobError
from gaflow.explainer.provenance import describe_model
from gaflow.jobs import attribute
from gaflow.jobs.identity import compare
from gaflow.jobs.manifest import Manifest
from gaflow.methods import Scores
from tests.support.manifests import as_first_written, edit_manifest
from tests.support.models import FAMILIES, bert
from tests.support.runs import files
from tests.support.task_models import sentence_encoder

TEXTS = [f"a dog {'is very ' * k}smart" for k in range(5)]
MODEL = {"name": "x", "weights": "p", "config": {"hidden_act": "gelu"}, "tokenizer": {"sha256": "t"}}
JOB = {
    "shard_size": 4,
    "model": MODEL,
    "methods": [{"name": "agf", "settings": {"mu": None}}, {"name": "ig", "settings": {"steps": 50}}],
    "threads": 1,
    "versions": {"torch": "2.13.0+cpu", "transformers": "5.22.2"},
}


def changed(**values):
    return {**copy.deepcopy(JOB), **values}


def plain(differences):
    return ["".join(str(part) for part in parts) for parts in differences]


def test_a_run_is_its_own():
    comparison = compare(JOB, copy.deepcopy(JOB))
    assert (comparison.decisive, comparison.rounding, comparison.unrecorded) == ([], [], [])


@pytest.mark.parametrize(
    ("current", "difference"),
    [
        (changed(shard_size=5), "shard_size is 4 there, 5 here"),
        (changed(model={**MODEL, "weights": "q"}), "the weights of the model differ"),
        (changed(model={**MODEL, "tokenizer": {"sha256": "u"}}), "the vocabulary or the rules of the tokenizer differ"),
        (
            changed(model={**MODEL, "config": {"hidden_act": "relu"}}),
            "hidden_act in the model's config is 'gelu' there, 'relu' here",
        ),
        (changed(methods=JOB["methods"][:1]), "methods: agf, ig there, but agf here"),
        (changed(methods=JOB["methods"][::-1]), "methods: agf, ig there, but ig, agf here"),
        (
            changed(methods=[{"name": "agf", "settings": {"mu": 2}}, JOB["methods"][1]]),
            "mu of method agf is None there, 2 here",
        ),
        (changed(windows={"size": None, "reads": 2}), "windows is None there, set here"),
        (changed(sample={"size": 22, "seed": 0}), "sample is None there, 22 here"),
        (changed(versions={**JOB["versions"], "torch": "2.14.0"}), "torch is '2.13.0+cpu' there, '2.14.0' here"),
    ],
)
def test_another_run_is_told_by_what_its_user_has_chosen(current, difference):
    comparison = compare(JOB, current)
    assert plain(comparison.decisive) == [difference]
    assert comparison.rounding == []


@pytest.mark.parametrize(
    ("current", "difference"),
    [
        (changed(threads=2), "the number of threads is 1 there, 2 here"),
        (changed(versions={**JOB["versions"], "torch": "2.13.1"}), "torch is '2.13.0+cpu' there, '2.13.1' here"),
        (changed(versions={**JOB["versions"], "numpy": "2.0"}), "numpy is None there, '2.0' here"),
    ],
)
def test_another_machine_is_the_same_run_but_for_rounding(current, difference):
    comparison = compare(JOB, current)
    assert comparison.decisive == []
    assert plain(comparison.rounding) == [difference]


def test_names_of_a_model_and_of_a_data_set_do_not_matter():
    assert compare(JOB, changed(model={**MODEL, "name": "y"})).decisive == []


def test_numbers_that_equal_nothing_equal_themselves():
    job = changed(model={**MODEL, "config": {"scale": float("nan")}})
    assert compare(job, copy.deepcopy(job)).decisive == []


def test_what_an_earlier_version_did_not_record_is_no_difference():
    earlier = changed(model={name: MODEL[name] for name in ("name", "weights", "tokenizer")})
    del earlier["threads"]
    comparison = compare(earlier, JOB)
    assert (comparison.decisive, comparison.rounding) == ([], [])
    assert comparison.unrecorded == ["the model's config", "the number of threads"]
    with pytest.warns(GaflowWarning, match="the model's config"):
        comparison.warn(folder="why")


def test_a_refusal_carries_the_arguments_so_that_the_command_line_can_name_its_options():
    with pytest.raises(JobError) as error:
        compare(JOB, changed(shard_size=5)).refuse(folder="why")
    assert error.value.argument == "shard_size"
    assert Argument("shard_size") in error.value.args
    assert "'why'" in str(error.value)


def explainer_with(**settings):
    """A tiny BERT of the same weights under another config."""
    model, tokenizer = bert()
    config = copy.deepcopy(model.config)
    for name, value in settings.items():
        setattr(config, name, value)
    other = type(model)(config).eval()
    other.load_state_dict(model.state_dict())
    return gaflow.Explainer(other, tokenizer)


def run(explainer, folder, stop_after=99):
    calls = []

    def stop():
        calls.append(1)
        return len(calls) > stop_after

    return attribute(explainer, TEXTS, folder, ["attcat"], batch_size=2, shard_size=2, stop=stop)


@pytest.mark.parametrize(
    "settings",
    [{"num_attention_heads": 2}, {"hidden_act": "relu"}, {"layer_norm_eps": 1e-3}, {"_attn_implementation": "eager"}],
)
def test_the_same_weights_under_another_config_are_another_model(tmp_path, settings):
    run(explainer_with(), tmp_path / "job", stop_after=2)
    before = files(tmp_path / "job")
    with pytest.raises(JobError):
        run(explainer_with(**settings), tmp_path / "job")
    assert files(tmp_path / "job") == before


class ReLU(torch.nn.Tanh):
    """Another class of a known name."""


def exchange_layer(bert_model):
    bert_model.encoder.layer[0].intermediate.intermediate_act_fn = torch.nn.ReLU()


def exchange_for_a_namesake(bert_model):
    bert_model.encoder.layer[0].intermediate.intermediate_act_fn = ReLU()


def change_scaling(bert_model):
    bert_model.encoder.layer[0].attention.self.scaling *= 3


def turn_positions(bert_model):
    bert_model.embeddings.position_ids = bert_model.embeddings.position_ids.flip(-1)


def add_hook(bert_model):
    bert_model.encoder.layer[0].register_forward_hook(lambda _module, _inputs, output: output)


def replace_forward(bert_model):
    bert_model.encoder.forward = lambda *inputs, **options: type(bert_model.encoder).forward(
        bert_model.encoder, *inputs, **options
    )


def exchange_function(bert_model):
    bert_model.pooler.act = torch.relu


def add_constant(bert_model):
    bert_model.pooler.scale = torch.tensor(2.0)


def add_list(bert_model):
    bert_model.encoder.factors = [1, {"of": (2, torch.float32)}]


@pytest.mark.parametrize(
    "change",
    [
        exchange_layer,
        exchange_for_a_namesake,
        change_scaling,
        turn_positions,
        add_hook,
        replace_forward,
        exchange_function,
        add_constant,
        add_list,
    ],
)
def test_a_model_that_was_changed_in_memory_is_another_model(tmp_path, change):
    run(explainer_with(), tmp_path / "job", stop_after=2)
    changed = explainer_with()
    change(changed.model.bert)
    with pytest.raises(JobError, match="layers of the model"):
        run(changed, tmp_path / "job")


class Scale:
    """A hook that remembers by how much it multiplies."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, _module, _inputs, output):
        return output * self.factor

    def multiply(self, module, inputs, output):
        return self(module, inputs, output)


def scaling(factor):
    return lambda _module, _inputs, output: output * factor


def scaling_gradients(factor):
    return lambda _module, gradients: tuple(gradient * factor for gradient in gradients)


def output_layer(bert_model):
    return bert_model.encoder.layer[0].output


def remake_class(bert_model, factor):
    kind = type(output_layer(bert_model))

    class Output(kind):
        def forward(self, hidden, inputs):
            return super().forward(hidden, inputs) * factor

    output_layer(bert_model).__class__ = Output


IN_TWO_WAYS = {  # of which only the code, or what it carries, differs
    "values that a function closes over": [
        lambda model: output_layer(model).register_forward_hook(scaling(2.0)),
        lambda model: output_layer(model).register_forward_hook(scaling(3.0)),
    ],
    "arrays that a function closes over": [
        lambda model: output_layer(model).register_forward_hook(scaling(torch.full((32,), 2.0))),
        lambda model: output_layer(model).register_forward_hook(scaling(torch.full((32,), 2.0001))),
    ],
    "the state of an object": [
        lambda model: output_layer(model).register_forward_hook(Scale(2.0)),
        lambda model: output_layer(model).register_forward_hook(Scale(3.0)),
    ],
    "the object of a method": [
        lambda model: output_layer(model).register_forward_hook(Scale(2.0).multiply),
        lambda model: output_layer(model).register_forward_hook(Scale(3.0).multiply),
    ],
    "a default": [
        lambda model: output_layer(model).register_forward_hook(lambda _m, _i, output, factor=2.0: output * factor),
        lambda model: output_layer(model).register_forward_hook(lambda _m, _i, output, factor=3.0: output * factor),
    ],
    "a number in the code": [
        lambda model: output_layer(model).register_forward_hook(lambda _m, _i, output: output * 2.0),
        lambda model: output_layer(model).register_forward_hook(lambda _m, _i, output: output * 3.0),
    ],
    "an operation": [
        lambda model: output_layer(model).register_forward_hook(lambda _m, _i, output: output * 2.0),
        lambda model: output_layer(model).register_forward_hook(lambda _m, _i, output: output + 2.0),
    ],
    "a hook of the backward pass": [
        lambda model: output_layer(model).register_full_backward_pre_hook(scaling_gradients(2.0)),
        lambda model: output_layer(model).register_full_backward_pre_hook(scaling_gradients(3.0)),
    ],
    "what the methods of a class close over": [
        lambda model: remake_class(model, 2.0),
        lambda model: remake_class(model, 3.0),
    ],
}


@pytest.mark.parametrize("difference", IN_TWO_WAYS)
def test_a_model_with_other_code_or_values_in_it_is_another_model(tmp_path, difference):
    first, second = IN_TWO_WAYS[difference]
    explainers = []
    for change in (first, first, second):
        explainers.append(explainer_with())
        change(explainers[-1].model.bert)
    run(explainers[0], tmp_path / "job", stop_after=2)
    before = files(tmp_path / "job")
    with pytest.raises(JobError, match="layers of the model"):
        run(explainers[2], tmp_path / "job")
    assert files(tmp_path / "job") == before
    assert run(explainers[1], tmp_path / "job").finished


def test_a_class_of_transformers_with_another_method_is_another_model(tmp_path, monkeypatch):
    explainer = explainer_with()
    run(explainer, tmp_path / "job", stop_after=2)
    kind = type(output_layer(explainer.model.bert))
    original = kind.forward
    monkeypatch.setattr(kind, "forward", lambda self, hidden, inputs: original(self, hidden, inputs) * 2)
    with pytest.raises(JobError, match="layers of the model"):
        run(explainer_with(), tmp_path / "job")


def test_a_hook_of_all_modules_makes_another_model(tmp_path):
    run(explainer_with(), tmp_path / "job", stop_after=2)
    hook = torch.nn.modules.module.register_module_forward_hook(lambda _module, _inputs, output: output)
    try:
        with pytest.raises(JobError, match="layers of the model"):
            run(explainer_with(), tmp_path / "job")
    finally:
        hook.remove()


def test_a_tokenizer_with_code_of_its_own_is_another_tokenizer(tmp_path):
    model, tokenizer = bert()
    run(gaflow.Explainer(model, tokenizer), tmp_path / "job", stop_after=2)
    other = copy.deepcopy(tokenizer)
    encode = other._encode_plus
    other._encode_plus = lambda text, *args, **kwargs: encode(text, *args, **kwargs)
    with pytest.raises(JobError, match="tokenizer"):
        run(gaflow.Explainer(model, other), tmp_path / "job")


def test_products_in_fewer_digits_are_another_model(tmp_path):
    run(explainer_with(), tmp_path / "job", stop_after=2)
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(JobError, match="precision"):
            run(explainer_with(), tmp_path / "job")
    finally:
        torch.set_float32_matmul_precision("highest")


def information_of(factor):
    def my_method(attention, _gradient):
        return attention.mean(2) * factor

    return my_method


def test_a_function_with_other_code_is_another_method(tmp_path):
    def run_method(method):
        return attribute(explainer_with(), TEXTS, tmp_path / "job", [method], shard_size=2, stop=lambda: True)

    run_method(gaflow.FlowMethod(information_of(1.0)))
    with pytest.raises(JobError, match="information of method"):
        run_method(gaflow.FlowMethod(information_of(2.0)))
    run_method(gaflow.FlowMethod(information_of(1.0)))


def method_class(factor):
    @dataclass(frozen=True)
    class Mine:
        name: str = "mine"

        def __call__(self, trace):
            return Scores(trace.attention.mean((1, 2, 3)) * factor)

    return Mine


def test_a_method_of_your_own_with_other_code_is_another_method(tmp_path):
    def run_method(method):
        return attribute(explainer_with(), TEXTS, tmp_path / "job", [method], shard_size=2, stop=lambda: True)

    run_method(method_class(1.0)())
    with pytest.raises(JobError, match="code of method mine"):
        run_method(method_class(2.0)())
    run_method(method_class(1.0)())


@pytest.mark.parametrize("settings", [{"pooling": "cls"}, {"pooling": ["mean", "max"]}, {"measure": "dot"}])
def test_another_pooling_is_another_model(settings):
    hashes = set()
    for changes in ({}, settings):
        model, tokenizer = sentence_encoder(**changes)
        hashes.add(describe_model(gaflow.Explainer(model, tokenizer, task="similarity"))["modules"])
    assert len(hashes) == 2


class Head(torch.nn.Module):
    """A classifier around an encoder, which has to be called in a way of its own."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.weights = torch.nn.Parameter(torch.ones(2, encoder.config.hidden_size))

    def forward(self, ids, mask):
        return self.encoder(ids, attention_mask=mask).last_hidden_state[:, 0] @ self.weights.T


def test_a_module_of_your_own_that_is_called_in_another_way_is_another_model():
    model, tokenizer = bert()
    head = Head(model.base_model)

    def call(inputs):
        return head(inputs["input_ids"], inputs["attention_mask"])

    def call_without_mask(inputs):
        return head(inputs["input_ids"], None)

    hashes = set()
    for function in (call, call_without_mask):
        custom = gaflow.CustomModel(head, ["a", "b"], call=function)
        hashes.add(describe_model(gaflow.Explainer(custom, tokenizer))["modules"])
    assert len(hashes) == 2


def test_explaining_does_not_make_another_model_of_it():
    explainer = explainer_with()
    before = describe_model(explainer)
    explainer(TEXTS[0])
    explainer(TEXTS[1], "lime")
    assert describe_model(explainer) == before


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_explaining_does_not_make_another_model_of_any_family(family):
    explainer = gaflow.Explainer(*FAMILIES[family]())
    before = describe_model(explainer)
    explainer(TEXTS, "agf")
    assert describe_model(explainer) == before
    again = gaflow.Explainer(*FAMILIES[family]())
    assert describe_model(again) == before


def test_another_automatic_precision_is_another_model(tmp_path):
    run(explainer_with(), tmp_path / "job", stop_after=2)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(JobError, match="precision"):
        run(explainer_with(), tmp_path / "job")


def test_settings_of_the_tokenizer_that_its_vocabulary_does_not_show_are_part_of_the_model(tmp_path):
    model, tokenizer = bert()
    run(gaflow.Explainer(model, tokenizer), tmp_path / "job", stop_after=2)
    other = copy.deepcopy(tokenizer)
    other.truncation_side = "left"
    with pytest.raises(JobError, match="truncation_side of the tokenizer"):
        run(gaflow.Explainer(model, other), tmp_path / "job")


def test_where_a_model_lies_and_which_version_saved_it_do_not_matter(tmp_path):
    run(explainer_with(), tmp_path / "job", stop_after=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome = run(explainer_with(_name_or_path="elsewhere", transformers_version="5.0.0"), tmp_path / "job")
    assert outcome.finished


def test_another_number_of_threads_is_told_and_written_down(tmp_path):
    run(explainer_with(), tmp_path / "job", stop_after=2)
    edit_manifest(tmp_path / "job", lambda job: job.update(threads=7))
    with pytest.warns(GaflowWarning, match="rounding"):
        assert run(explainer_with(), tmp_path / "job").finished
    manifest = Manifest.read(tmp_path / "job")
    assert manifest.job["threads"] == 7
    assert [environment["threads"] for environment in manifest.environments] == [1]
    with warnings.catch_warnings():  # all is there: nothing is computed, and so nothing is mixed
        warnings.simplefilter("error")
        assert run(explainer_with(), tmp_path / "job").computed == 0


def test_a_run_begun_by_the_first_version_goes_on_with_a_warning(tmp_path):
    run(explainer_with(), tmp_path / "whole")
    run(explainer_with(), tmp_path / "job", stop_after=2)
    edit_manifest(tmp_path / "job", as_first_written)
    with pytest.warns(GaflowWarning, match="config"):
        assert run(explainer_with(), tmp_path / "job").finished
    shards = files(tmp_path / "job")
    expected = files(tmp_path / "whole")
    del shards["manifest.json"], expected["manifest.json"]
    assert shards == expected


def test_a_warning_writes_control_characters_out(tmp_path):
    stored = {"versions": {"\x1b[31m": "1"}}
    with pytest.warns(GaflowWarning) as caught:
        compare(stored, {"versions": {}}).warn(tmp_path)
    assert all("\x1b" not in str(warning.message) for warning in caught)
