import numpy as np
import pytest

from gaflow.attribution.layer_names import layer_in_name, name_at_layer
from gaflow.methods import FlowMethod


@pytest.mark.parametrize("before", [0, 2, -1, "all"])
@pytest.mark.parametrize("after", [0, 1, -12, "all"])
@pytest.mark.parametrize("settings", [{}, {"epsilon": 0.1}, {"sources": (0, 3), "targets": "ordinary"}])
def test_a_name_at_another_layer_is_that_of_the_method_at_that_layer(before, after, settings):
    name = FlowMethod("gf", layer=before, **settings).name
    assert name_at_layer(name, after) == FlowMethod("gf", layer=after, **settings).name


@pytest.mark.parametrize("layer", [0, 2, -1, "all"])
@pytest.mark.parametrize(
    "settings", [{}, {"preset": "relevance_flow"}, {"preset": "peeled_flow", "replacement": "mask"}]
)
def test_the_layer_of_old_files_is_read_from_the_name(layer, settings):
    assert layer_in_name(FlowMethod(layer=layer, **settings).name) == layer


@pytest.mark.parametrize(
    ("name", "layer"), [("signed_flow", "all"), ("signed_flow(layer=0)", 0), ("path_flow(ranked=1)", 0)]
)
def test_names_of_earlier_versions_mean_what_they_meant(name, layer):
    assert layer_in_name(name) == layer
    assert name_at_layer(name, layer) == name


def test_a_layer_of_numpy_is_written_as_a_number():
    assert name_at_layer("agf", np.int64(2)) == "agf(layer=2)"  # type: ignore[arg-type]
