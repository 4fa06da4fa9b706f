"""`gaflow explain`: one text by one method."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from gaflow.arguments import whole_number
from gaflow.attribution.words import unit_of
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
    method_option,
    number,
    path_option,
)
from gaflow.cli.input_output import (
    SAVED_SUFFIXES,
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
from gaflow.explainer.default_method import DEFAULT, DEFAULT_WORDS
from gaflow.explainer.explainer import Explainer
from gaflow.explainer.windows import find_windows
from gaflow.methods import find_method
from gaflow.terminal.attribution import render
from gaflow.terminal.console import make_console, show


@app.command()
def explain(
    text: TextOrDash,
    pair: Pair = None,
    model: Model = None,
    task: TaskName = None,
    method: Annotated[
        str | None,
        method_option(f"One of 'gaflow methods'; default: {DEFAULT_WORDS}."),
    ] = None,
    target: TargetLabel = None,
    top: Annotated[int, number("How many words to list.", "K")] = 5,
    words: Annotated[bool, flag("--words", "Shade whole words instead of tokens.")] = False,
    sentences: Annotated[bool, flag("--sentences", "Shade and list whole sentences.")] = False,
    truncation: Truncation = False,
    windows: WindowsFlag = False,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    device_map: DeviceMapOption = None,
    quantization_config: Quantization = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: Json = False,
    save: Annotated[
        Path | None, path_option("FILE", "Save the result to FILE (.safetensors or .json) for gaflow.load.")
    ] = None,
    html: Html = None,
    flow_html: FlowHtml = None,
    svg: Annotated[Path | None, path_option("FILE", "Draw heat strip and bars to FILE (.svg, .pdf or .png).")] = None,
) -> None:
    """Show how much each token of TEXT contributed to the prediction.

    \b
    Examples:
      gaflow explain "this dog is not cute, but very smart." --model org/name
      gaflow explain - --target "positive minus negative" --svg why.svg < review.txt
      gaflow explain - --windows --sentences < long.txt
      gaflow explain "is it cute?" --pair "this dog is very smart." --model org/answers --target "very smart"
      gaflow explain "this dog is very [MASK]." --model org/masked --target "smart minus cute"
    """
    whole_number("top", top)
    find_windows(windows, truncation)
    if method is not None:
        find_method(method)  # a typing error should not cost the loading of a model
    check_file("--save", save, SAVED_SUFFIXES)
    check_file("--html", html)
    check_flow_page("--flow-html", flow_html, [method or DEFAULT])
    unit_of(words=words, sentences=sentences)
    check_picture("--svg", svg)
    text_or_pair = read_text(text, pair)
    with spinner("explaining") as progress:
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
        att = explainer(
            text_or_pair,
            method,
            target,
            truncation=truncation,
            windows=windows,
            progress=progress,
            keep_flow=save is not None or flow_html is not None,
        )
    write_file("--save", save, att.save)
    write_file("--html", html, lambda path: att.to_html(path, words=words, sentences=sentences))
    write_file("--flow-html", flow_html, att.to_flow_html)
    write_picture("--svg", svg, lambda: att.plot(words=words, sentences=sentences))
    if as_json:
        print_json(att.to_dict())
    else:
        console = make_console()
        show(console, render(att, console, top=top, words=words, sentences=sentences))
        print_written(save, html, flow_html, svg)
