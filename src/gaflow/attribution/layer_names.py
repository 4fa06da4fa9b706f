"""The scored node layer in the name of a flow method, by which stored results are identified.

The layer is the last setting of a name, and is left out where it is the method's default.
"""

from __future__ import annotations

import re

from gaflow.flow.result import NodeLayer, check_layer

_LAST_SETTING = re.compile(r"(\(|, )layer=(-?\d{1,9}|'all')\)$")
_DEFAULT_LAYERS: dict[str, NodeLayer] = {"signed_flow": "all"}  # of stored results; 0 for all other methods


def name_at_layer(name: str, layer: NodeLayer) -> str:
    """A flow method's `name`, for another layer: "agf(signed=True, layer=2)" becomes "agf(signed=True)" at layer 0."""
    layer = check_layer(layer)
    base = _LAST_SETTING.sub(lambda setting: "" if setting[1] == "(" else ")", name)
    if layer == _default_layer(base):
        return base
    if base.endswith(")"):
        return f"{base[:-1]}, layer={layer!r})"
    return f"{base}(layer={layer!r})"


def layer_in_name(name: str) -> NodeLayer:
    """The layer of a flow method's `name`, for files from before attributions stored their layer."""
    setting = _LAST_SETTING.search(name)
    if setting is None:
        return _default_layer(name)
    return "all" if setting[2] == "'all'" else int(setting[2])


def _default_layer(name: str) -> NodeLayer:
    return _DEFAULT_LAYERS.get(name.partition("(")[0], 0)
