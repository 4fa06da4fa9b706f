"""What the pages of circuit-tracer and Neuronpedia need of an attribution graph, read off their public code.

Both publish types for the JSON, and both fail on graphs that have the types but not what `check_readable` asks for.
"""

from typing import Any

import jsonschema

_TEXTS = {"type": "array", "items": {"type": "string"}}
_METADATA = {
    "type": "object",
    "required": ["slug", "scan", "transcoder_list", "prompt_tokens", "prompt"],
    "properties": {
        "slug": {"type": "string"},
        "scan": {"type": "string"},
        "transcoder_list": _TEXTS,
        "prompt_tokens": _TEXTS,
        "prompt": {"type": "string"},
        "node_threshold": {"type": "number"},
        "schema_version": {"type": "integer"},
        "info": {"type": "object", "properties": {"description": {"type": "string"}, "generator": {"type": "object"}}},
        "generation_settings": {"type": "object", "properties": {"batch_size": {"type": "integer"}}},
    },
}
_NODE = {
    "type": "object",
    "required": ["node_id", "feature", "layer", "ctx_idx", "feature_type", "jsNodeId", "clerp"],
    "properties": {
        "node_id": {"type": "string"},
        "feature": {"type": "integer"},
        "layer": {"type": "string"},
        "ctx_idx": {"type": "integer"},
        "feature_type": {"enum": ["embedding", "cross layer transcoder", "logit"]},
        "token_prob": {"type": "number"},
        "is_target_logit": {"type": "boolean"},
        "run_idx": {"type": "integer"},
        "reverse_ctx_idx": {"type": "integer"},
        "jsNodeId": {"type": "string"},
        "clerp": {"type": "string"},
        "influence": {"type": ["number", "null"]},
        "activation": {"type": ["number", "null"]},
    },
}
_LINK = {
    "type": "object",
    "required": ["source", "target", "weight"],
    "properties": {"source": {"type": "string"}, "target": {"type": "string"}, "weight": {"type": "number"}},
}
GRAPH = {
    "type": "object",
    "required": ["metadata", "qParams", "nodes", "links"],
    "properties": {
        "metadata": _METADATA,
        "qParams": {
            "type": "object",
            "required": ["pinnedIds", "supernodes", "linkType", "clickedId", "sg_pos"],
            "properties": {"pinnedIds": _TEXTS, "supernodes": {"type": "array", "items": _TEXTS}},
        },
        "nodes": {"type": "array", "items": _NODE},
        "links": {"type": "array", "items": _LINK},
    },
}


def check_readable(graph: Any) -> float:
    """Fail if a page could not show the graph; the probability that it shows for the output."""
    jsonschema.validate(graph, GRAPH)
    nodes = {node["node_id"]: node for node in graph["nodes"]}
    assert len(nodes) == len(graph["nodes"])
    (output,) = [node for node in nodes.values() if node["feature_type"] == "logit"]
    layers = [int(node["layer"]) for node in nodes.values() if node["feature_type"] == "cross layer transcoder"]
    assert layers
    assert min(layers) >= 1  # Neuronpedia draws layer 0 on the input, and refuses graphs without another
    assert int(output["layer"]) > max(layers)
    for link in graph["links"]:
        source = nodes[link["source"]]
        target = nodes[link["target"]]
        assert source["layer"] == "E" or int(source["layer"]) < int(target["layer"])
    for node in nodes.values():
        assert 0 <= node["ctx_idx"] < len(graph["metadata"]["prompt_tokens"])
    _, _, rest = output["clerp"].rpartition("(p=")
    return float(rest.partition(")")[0])
