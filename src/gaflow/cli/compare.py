"""`gaflow compare`: one text by many methods, side by side."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from gaflow.attribution.attribution import Attribution
from gaflow.cli.app import (
    Device,
    DeviceMapOption,
    Dtype,
    FlowHtml,
    Html,
    Json,
    Model,
    Pair,
    Quantization,
    Revision,
    TargetLabel,
    TaskName,
    TextOrDash,
    Truncation,
    TrustRemoteCode,
    WindowsFlag,
    app,
    flag,
    methods_option,
    parse_methods,
    path_option,
)
from gaflow.cli.input_output import (
    check_file,
    check_flow_page,
    check_picture,
    print_json,
    print_written,
    read_text,
    write_file,
    write_picture,
)
from gaflow.cli.progress import spinner
from gaflow.errors import GaflowWarning, UnsupportedModelError
from gaflow.explainer.default_method import LEADING
from gaflow.explainer.explainer import Explainer
from gaflow.html import flow_page, page
from gaflow.methods import METHODS, Method, MethodInfo
from gaflow.terminal.comparison import render_all
from gaflow.terminal.console import make_console, show


@app.command()
def compare(
    text: TextOrDash,
    pair: Pair = None,
    model: Model = None,
    task: TaskName = None,
    methods: Annotated[
        list[str] | None, methods_option(f"Names from 'gaflow methods', or all; default: {LEADING} and the quick ones.")
    ] = None,
    target: TargetLabel = None,
    tokens: Annotated[bool, flag("--tokens", "Compare tokens, special ones included, instead of words.")] = False,
    truncation: Truncation = False,
    windows: WindowsFlag = False,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    device_map: DeviceMapOption = None,
    quantization_config: Quantization = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: Json = False,
    html: Html = None,
    svg: Annotated[Path | None, path_option("FILE", "Draw tokens x methods to FILE (.svg, .pdf or .png).")] = None,
    flow_html: FlowHtml = None,
) -> None:
    """Explain TEXT by several methods and show them side by side.

    \b
    Examples:
      gaflow compare "this dog is not cute, but very smart."
      gaflow compare - --methods agf,attcat,rollout --target positive --html why.html < review.txt
    """
    default_methods = [name for name, method in METHODS.items() if name == LEADING or _needs_one_trace(method)]
    names = parse_methods(methods, default_methods)
    check_file("--html", html)
    check_picture("--svg", svg)
    check_flow_page("--flow-html", flow_html, names)
    text_or_pair = read_text(text, pair)
    with spinner("comparing") as progress:
        explainer = Explainer(
            model,
            task=task,
            device=device,
            dtype=dtype,
            revision=revision,
            device_map=device_map,
            quantization_config=quantization_config,
            trust_remote_code=trust_remote_code,
        )
        explain = partial(
            explainer.compare,
            text_or_pair,
            target=target,
            truncation=truncation,
            windows=windows,
            progress=progress,
            keep_flow=flow_html is not None,
        )
        try:
            attributions = explain(methods=names)
        except UnsupportedModelError:
            if methods:
                raise
            attributions = _compare_supported(explain, names)
    write_file("--html", html, lambda path: page(attributions, path, words=not tokens))
    write_file("--flow-html", flow_html, lambda path: flow_page(attributions, path))
    if svg is not None:
        from gaflow.plots import compare as draw_comparison

        write_picture("--svg", svg, lambda: draw_comparison(attributions))
    if as_json:
        print_json({name: att.to_dict() for name, att in attributions.items()})
    else:
        console = make_console()
        show(console, render_all(attributions, console, tokens=tokens))
        print_written(html, svg, flow_html)


def _compare_supported(explain: Callable[..., dict[str, Attribution]], names: Sequence[str]) -> dict[str, Attribution]:
    """What those methods say that can follow the model; a warning names the others."""
    attributions = {}
    left_out = []
    for name in names:
        try:
            attributions |= explain(methods=[name])
        except UnsupportedModelError:
            left_out.append(name)
    if not attributions:
        return explain(methods=names)  # for its error
    warnings.warn(
        f"left out, because they cannot follow this model: {', '.join(left_out)}", GaflowWarning, stacklevel=2
    )
    return attributions


def _needs_one_trace(method: Method) -> bool:
    """Whether the method needs one forward and one backward pass and no optional library."""
    method_info = getattr(method, "info", None)
    return isinstance(method_info, MethodInfo) and method_info.one_trace and not method_info.libraries
