"""Looking into figures: what is written in them, where it stands, and what is in their files."""

import io
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

import gaflow
from tests.support.attributions import make

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "<script>alert(1)</script>",
    "$x^2$",
    "$\\frac{a}{b",
    "\\$100",
    "]]> <!-- --> &amp; \"'",
    "שלום \u202eעולם\u2066 مرحبا",
    "👩\u200d💻 👍🏽 🇩🇪 e\u0301\u0302\u0303",
    "\x00\x01\x1b[31m\x7f\x85\u2028",
    "\ufeff",
    "\ud83d \udc4d",
    "a\r\nb\tc",
    "",
    "  ",
    "中文字符",
    "\\",
    "x" * 300,
    "{0} %s",
]


def text_of(t, length=6, layers=3, seed=0, signed=False):
    """An attribution of `t` tokens of about `length` letters, the first and last special, with a real flow."""
    generator, rng = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    letters = list("abcdefghijklmnopqrstuvwxyz")
    words = ["".join(rng.choice(letters, max(1, length - k % 3))) for k in range(t - 2)]
    ends = np.cumsum([len(word) + 1 for word in words]).tolist()
    places = [(end - len(word) - 1, end - 1) for word, end in zip(words, ends, strict=True)]
    flow = gaflow.solve((3 * torch.randn(layers, t, t, generator=generator, dtype=torch.float64)).softmax(-1))
    signs = rng.choice([1, -1], t) if signed else np.ones(t)
    return replace(
        make("dog"),
        text=" ".join(words),
        tokens=("[CLS]", *words, "[SEP]"),
        offsets=((0, 0), *places, (0, 0)),
        segments=(-1, *[0] * (t - 2), -1),
        scores=flow.target[0].numpy() * signs,
        layers=flow.through()[0].numpy(),
        flow=flow,
        certificate=flow.certificate[0],
    )


def in_sentences(att, length):
    """The attribution with a full stop at the end of every `length`-th ordinary token."""
    text = list(att.text)
    tokens = list(att.tokens)
    for token in range(length, len(tokens) - 1, length):
        _, end = att.offsets[token]
        text[end - 1] = "."
        tokens[token] = tokens[token][:-1] + "."
    return replace(att, text="".join(text), tokens=tuple(tokens))


def odd_text():
    """An attribution with every hostile string in the place of a token, and some elsewhere."""
    t = len(HOSTILE)
    names = {"label": "$\\alpha$<b>\x00", "method": "<m>$y$\ufeff", "prediction": "\ud800$z$"}
    return replace(text_of(t + 2), tokens=("[CLS]", *HOSTILE, "[SEP]"), **names)


def saved(figure, kind="svg"):
    """The file as bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind)
    return buffer.getvalue()


def tree(figure):
    """The SVG file, which must be well-formed."""
    return ET.fromstring(saved(figure))


def written(figure):
    """Every line of text in the SVG file."""
    return [node.text or "" for node in tree(figure).iter(f"{SVG}text")]


def assert_stands_apart(figure):
    """Assert that no line of text leaves the figure or touches another."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    draw, drawn = renderer.draw_text, {}

    def watch(gc, x, y, text, font, angle, ismath=False, mtext=None):
        drawn[id(mtext)] = mtext  # not every tick that an axis has is drawn
        draw(gc, x, y, text, font, angle, ismath=ismath, mtext=mtext)

    setattr(renderer, "draw_text", watch)  # noqa: B010  # the type checker knows no other way
    figure.draw(renderer)
    texts = list(drawn.values())
    boxes = np.array([text.get_window_extent(renderer).extents for text in texts])
    assert (boxes[:, :2] >= -1).all()
    assert (boxes[:, 2:] <= np.array(renderer.get_canvas_width_height()) + 1).all()
    # two lines may share what stands above and below their letters
    low, high = boxes[:, None, :2] + (0.5, 2), boxes[:, None, 2:] - (0.5, 2)
    meets = (low < high.swapaxes(0, 1)).all(-1) & (high > low.swapaxes(0, 1)).all(-1)
    pairs = [(texts[a].get_text(), texts[b].get_text()) for a, b in np.argwhere(np.triu(meets, 1)).tolist()]
    assert not pairs, pairs
