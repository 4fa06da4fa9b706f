"""Examples and pictures of the documentation are made by code that runs."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_demo_shows_every_method_and_writes_its_page(tmp_path, capsys):
    demo = runpy.run_path(str(ROOT / "examples" / "demo.py"))
    demo["main"](tmp_path / "demo.html")
    output = capsys.readouterr().out
    assert [f"explained by {name}" in output for name in ("agf", "gf", "af")] == [True] * 3
    assert "smart" in (tmp_path / "demo.html").read_text(encoding="utf-8")


def test_the_picture_of_the_readme_is_what_the_code_draws_and_needs_no_network():
    pictures = runpy.run_path(str(ROOT / "docs" / "pictures.py"))
    drawn, committed = pictures["explain"](), (ROOT / "docs" / "explain.svg").read_text(encoding="utf-8")
    assert drawn.count("http") == committed.count("http") == 1  # the name of SVG itself
    assert len(drawn.splitlines()) == len(committed.splitlines())
    for word in ("although", "cute", "certified"):
        assert word in drawn
        assert word in committed
