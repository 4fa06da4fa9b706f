"""Requests that the pages of the explorer make, against the same calls in Python."""

from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch

import gaflow
from gaflow.data import open_data
from gaflow.evaluation.faithfulness import evaluate
from gaflow.jobs import attribute, read_attributions
from gaflow.web import ServerSettings
from tests.support.servers import client_of, post

TEXT = "although this dog is not cute, it is very smart."
OTHER = "although this dog is cute, it is not very smart."


@pytest.fixture(scope="module")
def explainer():
    return gaflow.Explainer()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, explainer):
    folder = tmp_path_factory.mktemp("opened")
    rows = ["text,label"]
    for k in range(12):
        rows.append(f"a {'superb' if k % 2 else 'dull'} film number {k},{'positive' if k % 3 else 'negative'}")
    (folder / "texts.csv").write_text("\n".join(rows), encoding="utf-8")
    data = open_data(folder / "texts.csv", label_column="label")
    attribute(explainer, data, folder / "bench" / "films" / "attributions", ["agf", "attcat"])
    (folder / "saved").mkdir()
    explainer("a gripping film.").save(folder / "saved" / "one.safetensors")
    return folder


@pytest.fixture(scope="module")
def client(folder):
    with client_of(folders=[folder / "bench", folder / "saved"]) as client:
        yield client


@pytest.fixture(scope="module")
def result(client):
    return post(client, "explain", {"text": TEXT})


@pytest.fixture(scope="module")
def att(explainer):
    return explainer(TEXT)


def probabilities(explainer, hooks):
    """What the model says while hooks change the output of its modules: an independent way to remove attention."""
    handles = [module.register_forward_hook(hook) for module, hook in hooks]
    try:
        inputs = explainer.tokenizer(TEXT, return_tensors="pt")
        with torch.no_grad():
            return explainer.model(**inputs).logits.double().softmax(-1)[0].numpy()
    finally:
        for handle in handles:
            handle.remove()


def attention_outputs(explainer):
    """The modules that return what the heads of each layer have read."""
    return [layer.attention.self for layer in explainer.model.bert.encoder.layer]


def test_skipping_a_layer_of_the_model_is_attention_that_reads_nothing(client, explainer, result):
    answer = post(client, "remove", {"id": result["id"], "skip_layers": [1]})
    module = attention_outputs(explainer)[1]
    silent = probabilities(explainer, [(module, lambda *call: (torch.zeros_like(call[2][0]), *call[2][1:]))])
    assert answer["labels"] == ["negative", "positive"]
    np.testing.assert_allclose(answer["before"], probabilities(explainer, []), rtol=1e-5)
    np.testing.assert_allclose(answer["after"], silent, rtol=1e-4)


def test_removing_a_head_zeroes_its_part_of_what_is_read(client, explainer, result):
    layer, head = 2, 1
    size = explainer.model.config.hidden_size // explainer.model.config.num_attention_heads

    def without_head(module, inputs, output):
        read = output[0].clone()
        read[..., head * size : (head + 1) * size] = 0
        return (read, *output[1:])

    expected = probabilities(explainer, [(attention_outputs(explainer)[layer], without_head)])
    answer = post(client, "remove", {"id": result["id"], "cut_heads": [[layer, head]]})
    np.testing.assert_allclose(answer["after"], expected, rtol=1e-4)


def test_a_node_without_attention_reads_nothing_and_is_not_read(client, result):
    count = len(result["attribution"]["tokens"])
    edges = [[1, 5, j] for j in range(count)] + [[2, i, 5] for i in range(count)]
    node = post(client, "remove", {"id": result["id"], "cut_nodes": [[2, 5]]})
    same = post(client, "remove", {"id": result["id"], "cut_edges": edges})
    assert node["after"] == same["after"] != node["before"]
    assert (node["to_itself"], same["to_itself"]) == (0, 2)


def test_what_the_last_layer_writes_elsewhere_changes_nothing(client, result):
    last = len(result["attribution"]["layers"]) - 2
    answer = post(client, "remove", {"id": result["id"], "cut_edges": [[last, 3, 4], [last, 5, 0]]})
    np.testing.assert_allclose(answer["after"], answer["before"], rtol=1e-6)


def test_heads_add_up_to_attention_times_gradient(client, explainer, result):
    edges = [[4, 0, 11], [0, 3, 3], [2, 5, 1]]
    answer = post(client, "heads", {"id": result["id"], "edges": edges})
    model = explainer.model
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        outputs = model(**explainer.tokenizer(TEXT, return_tensors="pt"), output_attentions=True)
        gradients = torch.autograd.grad(outputs.logits[0, 1], outputs.attentions)
    finally:
        model.set_attn_implementation(implementation)
    for (layer, i, j), amounts in zip(edges, answer["amounts"], strict=True):
        expected = (outputs.attentions[layer] * gradients[layer])[0, :, i, j]
        np.testing.assert_allclose(amounts, expected.detach(), rtol=1e-3, atol=1e-7)


def test_the_random_band_has_the_middle_of_the_random_orders(client, explainer, result, att):
    body = {"id": result["id"], "levels": [20, 60], "random_orders": 6}
    answer = post(client, "mask", body)
    generator = np.random.default_rng(0)
    orders = {str(k): [generator.permutation(len(att.tokens)).astype(float)] for k in range(6)}
    evaluation = evaluate(
        explainer, [TEXT], methods=[], scores=orders, target="positive", order="top", levels=[20, 60], eraser=False
    )
    runs = np.exp(evaluation.masked[[evaluation.methods.index(str(k)) for k in range(6)], 0])
    np.testing.assert_allclose(answer["band"]["low"], np.quantile(runs, 0.05, axis=0), rtol=1e-4)
    np.testing.assert_allclose(answer["band"]["mean"], runs.mean(0), rtol=1e-4)
    np.testing.assert_allclose(answer["band"]["high"], np.quantile(runs, 0.95, axis=0), rtol=1e-4)
    assert answer["masked"] == [2, 7]
    ordinary = np.flatnonzero(~att.special_mask)
    assert answer["order"] == sorted(ordinary, key=lambda i: -att.scores[i])


def test_a_route_ends_where_its_narrowest_edge_is_cut(client, result, att):
    routes = post(client, "routes", {"id": result["id"], "k": 4})["routes"]
    for route in routes:
        tokens = route["tokens"]
        carried = [att.flow.edges[0, k, tokens[k + 1], tokens[k]].item() for k in range(len(tokens) - 1)]
        k = int(np.argmin(carried))
        assert route["narrowest"] == [k, tokens[k + 1], tokens[k]]


def test_groups_get_names_in_place_of_their_text(client, result, att):
    groups = [[8, 9], [4, 5, 6], [1]]
    answer = post(client, "solve", {"id": result["id"], "groups": groups, "group_names": ["", "negation"]})
    expected = list(att.edit(groups=groups).tokens)
    expected[4] = "negation"
    assert answer["attribution"]["tokens"] == expected
    post(client, "solve", {"id": result["id"], "groups": "word", "group_names": ["a"]}, 422)
    post(client, "solve", {"id": result["id"], "groups": [[1, 2]], "group_names": ["a", "b"]}, 422)


def test_the_difference_of_two_flows_is_that_of_their_shares(client, explainer, result, att):
    other = post(client, "explain", {"text": OTHER})
    second = explainer(OTHER)
    pairs = [[1, 1], [3, 3], [11, 12], [0, 0]]
    answer = post(client, "difference", {"first": result["id"], "second": other["id"], "pairs": pairs, "edges": 3600})
    shares = []
    for flow, tokens in ((att.flow, [1, 3, 11, 0]), (second.flow, [1, 3, 12, 0])):
        shares.append(flow.edges[0][:, tokens][:, :, tokens].numpy() / flow.value.item())
    drawn = np.zeros((2, *shares[0].shape))
    for layer, i, j, a, b in answer["edges"]:
        drawn[:, layer, i, j] = a, b
    np.testing.assert_allclose(drawn[1] - drawn[0], shares[1] - shares[0], rtol=1e-5, atol=1e-12)
    assert answer["moved"] == pytest.approx(np.abs(shares[1] - shares[0]).sum((1, 2)).mean() / 2, rel=1e-5)
    same = post(
        client, "difference", {"first": result["id"], "second": result["id"], "pairs": [[k, k] for k in range(14)]}
    )
    assert same["edges"] == []
    assert same["moved"] == 0


@pytest.mark.parametrize("kind", ["html", "flow", "svg", "json", "graph", "safetensors"])
def test_a_result_is_exported_as_python_writes_it(client, result, att, tmp_path, kind):
    response = client.post("/api/v1/export", json={"id": result["id"], "kind": kind})
    assert response.status_code == 200
    assert response.headers["content-disposition"].startswith("attachment; ")
    if kind == "json":
        jsonschema.validate(response.json(), gaflow.schema("attribution"))
    elif kind == "graph":
        links = {(link["source"], link["target"]): link["weight"] for link in att.to_graph()["links"]}
        drawn = {(link["source"], link["target"]): link["weight"] for link in response.json()["links"]}
        assert drawn == pytest.approx(links, rel=1e-6)
    elif kind == "safetensors":
        path = tmp_path / "result.safetensors"
        path.write_bytes(response.content)
        flow = gaflow.load(path).flow
        assert flow is not None
        np.testing.assert_allclose(flow.edges, att.flow.edges, rtol=1e-6, atol=1e-12)
    else:
        assert all(word.text in response.text for word in att.words() if word.text.isalpha())


def test_benchmarks_and_folders_of_saved_results_are_found(client):
    runs = {run["name"]: run["kind"] for run in client.get("/api/v1/runs").json()["runs"]}
    assert runs == {"bench.films": "run", "saved.one.safetensors": "attribution"}


def test_links_that_lead_out_of_a_folder_are_left_out(tmp_path, folder):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "inside.safetensors").write_bytes(b"")
    (tmp_path / "here" / "outside.safetensors").symlink_to(folder / "saved" / "one.safetensors")
    runs = ServerSettings(folders=[tmp_path / "here"]).runs
    assert runs == {"here.inside.safetensors": Path(tmp_path / "here" / "inside.safetensors").resolve()}


def rows(client, **filters):
    response = client.get("/api/v1/runs/bench.films/rows", params={"method": "agf", "count": 200, **filters})
    assert response.status_code == 200, response.text
    return response.json()["rows"]


def test_rows_pass_every_filter(client, folder):
    stored = list(read_attributions(folder / "bench" / "films" / "attributions", methods=["agf"]))
    errors, specials = {}, {}
    for row in stored:
        assert row.certificate is not None
        assert row.scores is not None
        errors[row.row] = max(row.certificate[name] for name in ("conservation", "dual", "centrality"))
        specials[row.row] = float(abs(row.scores)[row.special_mask].sum() / abs(row.scores).sum())
    all_rows = rows(client)
    assert [row["certificate_error"] for row in all_rows] == pytest.approx([errors[row["row"]] for row in all_rows])
    assert [row["special_share"] for row in all_rows] == pytest.approx([specials[row["row"]] for row in all_rows])
    middle = sorted(errors.values())[6]
    assert {row["row"] for row in rows(client, least_error=middle)} == {k for k in errors if errors[k] >= middle}
    share = sorted(specials.values())[6]
    assert {row["row"] for row in rows(client, least_special=share)} == {k for k in specials if specials[k] >= share}
    assert {row["row"] for row in rows(client, contains="SUPERB")} == {1, 3, 5, 7, 9, 11}
    both = rows(client, contains="superb", wrong=True)
    assert both == [row for row in rows(client, wrong=True) if "superb" in row["text"]]


def test_a_row_is_opened_as_it_was_stored(client, folder):
    stored = next(
        row
        for row in read_attributions(folder / "bench" / "films" / "attributions", methods=["attcat"])
        if row.row == 5
    )
    assert stored.scores is not None
    answer = post(client, "runs/bench.films/open?row=5&method=attcat&edges=10", {})
    assert answer["attribution"]["method"] == "attcat"
    np.testing.assert_allclose(answer["attribution"]["scores"], stored.scores, rtol=1e-6)
    assert answer["drawing"]["levels"] > 0
    post(client, "runs/bench.films/open?row=99", {}, 404)
    post(client, "runs/bench.films/open", {}, 422)


def test_words_of_a_run_are_those_of_the_corpus(client, folder):
    answer = client.get("/api/v1/runs/bench.films/corpus?method=agf&minimum=2").json()
    table = gaflow.corpus(folder / "bench" / "films" / "attributions", method="agf", minimum=2)
    drawn = {}
    for name, sides in answer["classes"].items():
        for row in [*sides["for"], *sides["against"]]:
            drawn[name, row["words"]] = (row["share"], row["low"], row["high"])
    expected = {(row["class"], row["words"]): (row["share"], row["low"], row["high"]) for _, row in table.iterrows()}
    assert drawn.keys() == expected.keys()
    for key, numbers in expected.items():
        assert drawn[key] == pytest.approx(numbers, rel=1e-6), key
    assert client.get("/api/v1/runs/saved.one.safetensors/corpus").status_code == 422
    assert client.get("/api/v1/runs/bench.films/corpus?length=9").status_code == 422


def test_limits_are_listed(client):
    assert client.get("/api/v1/limits").json()["limits"]["tokens"] == 512


PROBLEMS = [
    ("remove", {"cut_edges": [[9, 0, 0]]}, "cut_edges"),
    ("remove", {"cut_nodes": [[0, 99]]}, "cut_nodes"),
    ("remove", {"skip_layers": [-1]}, "skip_layers"),
    ("remove", {"cut_heads": [[0, 99]]}, "cut_heads"),
    ("remove", {"replacement": "noise"}, "replacement"),
    ("heads", {"edges": [[0, 0, 99]]}, "edges"),
    ("heads", {"edges": []}, "edges"),
    ("export", {"kind": "exe"}, "kind"),
    ("mask", {"random_orders": 101}, "random_orders"),
]


@pytest.mark.parametrize(("path", "body", "argument"), PROBLEMS)
def test_a_wrong_request_names_its_argument(client, result, path, body, argument):
    assert post(client, path, {"id": result["id"], **body}, 422)["argument"] == argument


def test_the_difference_needs_pairs_of_both_results(client, result):
    ids = {"first": result["id"], "second": result["id"]}
    for pairs in ([[0, 99]], [[0, 0], [0, 1]], [[-1, 0]], []):
        assert post(client, "difference", {**ids, "pairs": pairs}, 422)["argument"] == "pairs"
    attcat = post(client, "explain", {"text": TEXT, "method": "attcat"})
    post(client, "difference", {**ids, "second": attcat["id"], "pairs": [[0, 0]]}, 422)


def test_what_was_opened_from_a_file_has_no_model_to_ask(client):
    opened = post(client, "runs/saved.one.safetensors/open", {})
    for path, body in (("remove", {"skip_layers": [0]}), ("heads", {"edges": [[0, 0, 0]]})):
        assert post(client, path, {"id": opened["id"], **body}, 422)["argument"] == "id"


def test_the_model_cannot_be_asked_about_joined_tokens(client, result):
    words = post(client, "solve", {"id": result["id"], "groups": "sentence"})
    assert post(client, "remove", {"id": words["id"], "skip_layers": [0]}, 422)["argument"] == "id"
