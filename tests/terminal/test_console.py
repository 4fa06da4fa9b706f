import io

import pytest
from rich.console import Console

from gaflow.terminal.console import paint, show, table
from gaflow.view.shades import LEVELS, contrast


@pytest.mark.parametrize("coarse", [False, True])
def test_letters_can_be_read_on_every_shade_and_larger_scores_are_darker(coarse):
    for sign in (-1, 1):
        styles = [paint(sign * level, coarse=coarse) for level in range(LEVELS + 1)]
        fronts = [style.color.get_truecolor() for style in styles if style.color]
        backs = [style.bgcolor.get_truecolor() for style in styles if style.bgcolor]
        assert all(contrast(front, back) >= 4.5 for front, back in zip(fronts, backs, strict=True))
        darkness = [contrast((255, 255, 255), back) for back in backs]
        assert darkness[0] == 1 < darkness[-1]
        assert darkness == sorted(darkness)


def test_tables_wrap_their_last_column_only():
    stream = io.StringIO()
    show(Console(file=stream, width=20), table(["name", "about"], [["a name", "many words in a row"]]))
    assert stream.getvalue() == "name    about\na name  many words\n        in a row\n"
