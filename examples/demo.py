"""Explain one sentence with the embedded model by every flow method: in the terminal, and as a page in demo.html."""

from pathlib import Path

import gaflow
from gaflow.html import page
from gaflow.terminal import make_console, render, show

TEXT = "although this dog is not cute, it is very smart."


def main(out: Path = Path("demo.html")) -> None:
    """Everything below comes from a single trace of the model."""
    results = gaflow.Explainer().compare(TEXT, methods=["agf", "gf", "af"])
    console = make_console()
    for attribution in results.values():
        show(console, render(attribution, console, top=3))
    page(results, out)
    console.print(f"written to {out}: the same as a page; next: .venv/bin/gaflow explain --help, and README.md")


if __name__ == "__main__":
    main()
