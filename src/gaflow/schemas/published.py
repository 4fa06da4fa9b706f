"""The JSON Schemas of what gaflow writes, for other programs that read it.

The convention this file owns: published schemas are made of those that gaflow checks files against, so that the two
cannot differ. `version` is the format that the schema describes; it counts up when older readers would misread a file.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from gaflow.arguments import checked, one_of
from gaflow.schemas.check import SCHEMAS

JsonSchema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_KINDS = {"f": "number", "i": "integer", "b": "boolean"}  # NumPy's letters for types


@checked
def schema(name: str) -> JsonSchema:
    """The JSON Schema (draft 2020-12) of "attribution", "attribution file", "flow" or "manifest", as a new dict.

    "attribution" is the value of `att.to_dict()`, "flow" its entries `flow` and `flow_against`, "attribution file" a
    saved .json file, and "manifest" the manifest.json of a data-set run.

        jsonschema.validate(att.to_dict(), gaflow.schema("attribution"))
    """
    one_of("name", name, PUBLISHED)
    described = copy.deepcopy(PUBLISHED[name]())
    version = SCHEMAS["formats"][name.removesuffix(" file")]
    identifier = name.replace(" ", "-")
    return {"$schema": _DIALECT, "$id": f"urn:gaflow:{identifier}:{version}", "version": version, **described}


def _attribution() -> JsonSchema:
    """The schema of stored fields, and of what `to_dict` adds. JSON has no NaN, so numbers may be null."""
    stored = copy.deepcopy(dict(SCHEMAS["attribution"]))
    added = SCHEMAS["exported attribution"]
    properties = stored["properties"]
    for number in properties["certificate"]["properties"].values():
        number["type"] = [number["type"], "null"]
    properties["facts"]["additionalProperties"]["type"] = ["number", "string", "null"]
    properties["facts"]["properties"]["value_against"]["type"] = ["number", "null"]
    del properties["media"]  # arrays, which only files hold
    return {
        "title": "An attribution, as Attribution.to_dict gives it",
        "type": "object",
        "properties": properties | added["properties"] | {"flow": _flow(), "flow_against": _flow()},
        "required": [*stored["required"], *added["required"]],
    }


def _attribution_file() -> JsonSchema:
    """The schema of the file, with that of the stored fields in it."""
    file = copy.deepcopy(dict(SCHEMAS["attribution file"]))
    header = file["properties"]["gaflow"]
    stored = SCHEMAS["attribution"]
    file["properties"]["gaflow"] = {
        **stored,
        "properties": stored["properties"] | header["properties"],
        "required": [*header["required"], *stored["required"]],
    }
    return file


def _flow() -> JsonSchema:
    """The schema of one flow, from the description of the arrays that it is stored as: a batch of one."""
    properties = {}
    required = []
    for key, array in SCHEMAS["arrays"]["flow"].items():
        record, _, name = key.partition(".")
        if record != "flow":
            continue
        values: JsonSchema = {"type": _KINDS[array["kinds"]]}
        if "minimum" in array:
            values["minimum"] = array["minimum"]
        for _ in array["shape"][1:]:
            values = {"type": "array", "items": values}
        properties[name] = values
        if not array.get("optional"):
            required.append(name)
    title = "A flow: edges (l, t, t) from token i of layer k+1 to token j of layer k, source (t,) and target (t,)"
    return {"title": title, "type": "object", "properties": properties, "required": required}


def _manifest() -> JsonSchema:
    manifest = SCHEMAS["manifest"]
    return {**manifest, "required": ["format", *manifest["required"]]}


PUBLISHED: dict[str, Callable[[], JsonSchema]] = {
    "attribution": _attribution,
    "attribution file": _attribution_file,
    "flow": _flow,
    "manifest": _manifest,
}
