import json
import math
import re

import pytest
import torch

import gaflow
from gaflow.cli.info import extrapolate, solve_seconds
from gaflow.models.cost import Geometry, estimate, solve_flops
from gaflow.models.loading import outline
from gaflow.models.memory import method_costs
from tests.support.commands import gives, refused, saved
from tests.support.models import FAMILIES, SENTENCE, bert, longformer
from tests.support.sentence_folders import write_folder

pytestmark = pytest.mark.usefixtures("plain")


def streamed(method):
    """The cost of a method whose pass is streamed, on a CPU."""
    (cost,) = method_costs([gaflow.METHODS[method]], torch.device("cpu"), streamed=True)
    return cost


@pytest.mark.parametrize("family", FAMILIES)
def test_info_says_what_a_trace_would_find(capfd, tmp_path, family):
    model, tokenizer = FAMILIES[family]()
    folder = saved((model, tokenizer), tmp_path)
    document = json.loads(gives(capfd, "info", folder, "--json", "--length", "7"))
    explainer = gaflow.Explainer(folder)
    layers = explainer(SENTENCE).layers
    assert layers is not None
    assert document["layers"] == len(layers) - 1
    assert document["attention"] == [document["layers"], document["heads"], 7, 7]
    assert document["parameters"] == sum(p.numel() for p in model.parameters())
    assert document["limit"] == explainer.runner.limit
    assert document["labels"] == list(explainer.head.labels)
    assert (document["class"], document["task"], document["dtype"]) == (type(model).__name__, explainer.task, "float32")
    assert document["method"] == "peeled_flow"
    assert document["estimate"]["flops"] == 2 * solve_flops(document["layers"], 7)  # for and against the output
    assert document["estimate"]["seconds"] > 0
    assert document["estimate"]["peak"] > 0


@pytest.mark.parametrize(
    ("make", "answer"), [(bert, "yes, with peeled_flow"), (longformer, "yes, but only with agf: .*residual stream")]
)
def test_the_first_line_says_whether_a_model_can_be_explained(capfd, tmp_path, monkeypatch, make, answer):
    folder = saved(make(), tmp_path)
    assert re.match(answer, gives(capfd, "info", folder))
    assert re.match(answer, json.loads(gives(capfd, "info", folder, "--json"))["verdict"])
    monkeypatch.setattr("gaflow.cli.info._MOST_TRIED", 1)
    assert re.match("probably yes.*nothing tried", gives(capfd, "info", folder))
    assert json.loads(gives(capfd, "info", folder, "--json"))["verdict"] is None


def test_info_needs_no_weights_and_fits_the_text_to_the_model(capfd, folder, tmp_path):
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    output = gives(capfd, "info", tmp_path)
    assert re.search(r"a text of +64 tokens: attention \(3, 4, 64, 64\)", output)
    assert "BertForSequenceClassification (bert), text-classification" in output
    assert "negative, positive, neutral" in output


def test_info_says_how_the_embeddings_of_a_sentence_encoder_are_made(capfd, tmp_path):
    write_folder(tmp_path, modules=[("Pooling", {"pooling_mode": "max"}), ("Normalize", {})])
    document = json.loads(gives(capfd, "info", tmp_path, "--json"))
    assert (document["task"], document["output"]) == ("similarity", "cosine similarity, max pooling")
    assert (document["dtype"], document["labels"]) == ("float32", [])
    assert "max pooling" in gives(capfd, "info", tmp_path)


@pytest.mark.parametrize("length", ["0", "65"])
def test_info_refuses_lengths_that_the_model_does_not_take(capfd, folder, length):
    assert re.search(f"--length.*1 to 64.* {length}$", refused(capfd, "info", folder, "--length", length))


@pytest.mark.parametrize(
    ("free", "pattern"),
    [
        (1 << 40, r"memory +59\.2 MiB.*room +cpu .*1,024 GiB.*enough.* \d+,\d+ "),
        (20 << 20, r"room +cpu .*20 MiB.*too little.* 10 "),
        (1 << 20, r"room +cpu .* 1 MiB.*too little.* 42 tokens"),
        (None, r"room +cpu [^0-9]* batches"),
    ],
)
def test_info_says_whether_a_batch_fits_and_what_would(capfd, folder, monkeypatch, free, pattern):
    monkeypatch.setattr("gaflow.cli.info.free_memory", lambda device: free)
    output = gives(capfd, "info", folder, "--batch-size", "30", "--length", "64", "--device", "cpu", "--method", "agf")
    assert re.search(pattern, " ".join(output.split())), output


def test_info_in_json_counts_weights_and_batch(capfd, folder, monkeypatch):
    monkeypatch.setattr("gaflow.cli.info.free_memory", lambda device: 1 << 30)
    args = ["info", folder, "--json", "--length", "64", "--device", "cpu", "--method", "agf", "--batch-size"]
    one, many = (json.loads(gives(capfd, *args, n)) for n in ("1", "3"))
    assert one["weights"] == 4 * one["parameters"]
    assert one["estimate"]["peak"] < many["estimate"]["peak"] <= 3 * one["estimate"]["peak"]
    assert one["fits"] == many["fits"]
    geometry, room = Geometry(3, 4, 32, 48), (1 << 30) - one["weights"]
    fitting, together = one["fits"]["batch"], one["together"]
    cost = streamed("agf")
    peaks = [estimate(geometry, 64, n, cost).peak for n in (fitting, fitting + 1, together, together + 1)]
    assert peaks[0] <= room < peaks[1]
    assert peaks[2] <= one["budget"] < peaks[3]


def test_info_counts_what_the_method_does(capfd, folder):
    args = ["info", folder, "--length", "64", "--device", "cpu"]
    document = json.loads(gives(capfd, *args, "--json", "--batch-size", "3"))
    cost = estimate(Geometry(3, 4, 32, 48), 64, 3, streamed("peeled_flow"))
    assert (document["estimate"]["contexts"], document["estimate"]["peak"]) == (cost.contexts, cost.peak)
    output = " ".join(gives(capfd, *args).split())
    assert re.search("method peeled_flow.* 5 forward, 5 backward", output)
    assert re.search(r"contexts \d.*? MiB", output)
    output = " ".join(gives(capfd, *args, "--method", "agf").split())
    assert "method agf: 1 forward, 1 backward" in output
    assert "contexts" not in output
    assert "--method must be a flow" in refused(capfd, *args, "--method", "lime")


def test_info_refuses_batches_of_nothing(capfd, folder):
    assert re.search("--batch-size.* 0$", refused(capfd, "info", folder, "--batch-size", "0"))


def test_info_refuses_models_without_one_stack_of_layers(capfd, monkeypatch, folder):
    monkeypatch.setattr("gaflow.cli.info.Geometry.of", lambda config: None)
    assert "attention layers" in refused(capfd, "info", folder)


def test_many_labels_are_cut_short(capfd, tmp_path):
    folder = saved(bert(num_labels=23), tmp_path)
    assert "LABEL_19 and 3 more" in " ".join(gives(capfd, "info", folder).split())


def test_info_says_who_reads_the_attention_and_where_padding_matters(capfd, monkeypatch, folder):
    loaded = outline(folder)
    monkeypatch.setattr("gaflow.cli.info.outline", lambda *_: loaded)
    assert "adapter" not in gives(capfd, "info", folder)
    loaded.model.config.model_type = "funnel"
    output = " ".join(gives(capfd, "info", folder).split())
    assert "adapter: pooled layers" in output
    document = json.loads(gives(capfd, "info", folder, "--json"))
    assert (document["adapter"], document["padding"]) == ("pooled layers", False)


def test_info_refuses_what_cannot_be_traced(capfd, monkeypatch, folder):
    loaded = outline(folder)
    loaded.model.config.model_type = "fnet"
    monkeypatch.setattr("gaflow.cli.info.outline", lambda *_: loaded)
    assert re.search("no: .*Fourier", refused(capfd, "info", folder))


def test_extrapolating_to_the_same_size_changes_nothing():
    assert extrapolate(0.25, 64, 64, 12, 1e9) == 0.25


def test_extrapolated_seconds_grow_by_edges_and_then_by_flops():
    assert math.isclose(extrapolate(1.0, 10, 30, 2, math.inf), 9.0)
    flops = solve_flops(2, 30) - 9 * solve_flops(2, 10)
    assert math.isclose(extrapolate(1.0, 10, 30, 2, 1e6), 9.0 + flops / 1e6)


@pytest.mark.parametrize("length", [1, 100])
def test_seconds_are_taken_on_the_spot(length):
    assert 0 < solve_seconds(2, length) < math.inf
