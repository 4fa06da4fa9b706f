"""The tables of docs/evidence.md are those of the committed results."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")


def tables(text: str, level: str = "##") -> dict[str, list[list[list[str]]]]:
    """The tables below each heading, as rows of cells without their heads."""
    by_heading: dict[str, list[list[list[str]]]] = {}
    for section in re.split(rf"^{level} ", text, flags=re.MULTILINE)[1:]:
        heading = section.splitlines()[0]
        by_heading[heading] = []
        for block in re.findall(r"(?:^\|.*\n?)+", section, flags=re.MULTILINE):
            rows = [
                [cell.strip().replace("**", "") for cell in line.strip("|").split("|")] for line in block.splitlines()
            ]
            by_heading[heading].append(rows[2:])
    return by_heading


def committed(name: str) -> dict[str, list[list[list[str]]]]:
    return tables((RESULTS / name).read_text(encoding="utf-8"))


def mean_of(cell: str) -> str:
    return re.split(r" [±(]", cell)[0]


def test_routes_and_cuts():
    results = committed("routes_sst2.md")
    differences: dict[tuple[str, str], list[str]] = {}
    for heading in ("pad", "zero", "renormalise"):
        for name, opponent, comprehensiveness, _ in results[f"Edges of routes and cuts: {heading}"][1]:
            differences.setdefault((name, opponent), []).append(mean_of(comprehensiveness))
    rows = tables(PAGE)["Routes and cuts"][0]
    assert len(rows) == 8
    for label, _, *cells in rows:
        flow, sets = label.split(", ")
        flow = flow.strip("`")
        name = {"widest route": "1 widest routes", "5 routes": "5 widest routes", "20 routes": "20 widest routes"}
        set_name = f"{flow}: {name.get(sets, sets)}"
        opponents = (f"{flow}: capacities", "attention x balanced gradient", "random")
        expected = [" / ".join(differences[set_name, opponent]) for opponent in opponents]
        assert cells == expected


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("attention removed between the two (one pass for each pair)", "attention removed: zero"),
        ("product of the two scores of `attnlrp`", "product of scores: attnlrp"),
        ("attention between them, summed over layers", "attention between them"),
        ("product of the two scores of `ig`", "product of scores: ig(steps=20)"),
        ("second-order effects, balanced gradients", "second order: balanced"),
        ("second-order effects, plain gradients", "second order: plain"),
        ("how near they are in the text", "nearness"),
        ("shared flow of `relevance_flow`", "shared flow: relevance_flow"),
        ("shared flow of `peeled_flow`", "shared flow: peeled_flow"),
        ("shared flow of `agf`", "shared flow: agf"),
        ("random numbers", "random"),
    ],
)
def test_interactions(label, name):
    results = committed("interactions_sst2.md")
    documented = {row[0]: row[1:] for row in tables(PAGE)["Interactions"][0]}
    for column, heading in enumerate(("pad", "mask", "delete")):
        measured = {row[0]: mean_of(row[1]) for row in results[f"Masked tokens: {heading}"][0]}
        assert float(documented[label][column]) == float(measured[name])


def test_entities():
    results = (RESULTS / "entities_wnut17.md").read_text(encoding="utf-8")
    measured = {}
    for line in results.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 8:
            measured[cells[0]] = [cells[2], cells[4], cells[6]]
    documented = {row[0].strip("`"): row[1:] for row in tables(PAGE)["Entities and answers"][0]}
    assert len(documented) == 13
    for method, cells in documented.items():
        assert cells == measured[method]


def test_counterfactual_pairs():
    measured = {}
    for row in committed("counterfactuals_sst2.md")["Counterfactual pairs"][0]:
        measured[row[0]] = row[1:3]
    documented = {row[0].strip("`"): row[1:] for row in tables(PAGE)["Counterfactual pairs"][0]}
    assert documented == measured
