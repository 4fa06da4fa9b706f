"""Explain one sentence with the embedded model by flow methods: in the terminal, and as a page in demo.html."""

from pathlib import Path

import gaflow
from gaflow.html import page
from gaflow.terminal.attribution import render
from gaflow.terminal.console import make_console, show

TEXT = "although this dog is not cute, it is very smart."


def main(out: Path = Path("demo.html")) -> None:
    """The default, and the paper's three."""
    results = gaflow.Explainer().compare(TEXT, methods=["peeled_flow", "agf", "gf", "af"])
    console = make_console()
    for attribution in results.values():
        show(console, render(attribution, console, top=3))
    page(results, out)
    console.print(f"written to {out}: the same as a page; next: .venv/bin/gaflow explain --help, and README.md")


if __name__ == "__main__":
    main()
