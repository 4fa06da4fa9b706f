import numpy as np
import pytest
import torch

import gaflow
from gaflow.inputs.media import Image, Sound, media_from_array
from tests.support.task_models import listener, picture, sound, viewer


@pytest.mark.parametrize("media", [Image(picture(), (4, 5)), Sound(sound(50)[0], 8000)])
def test_what_is_stored_is_read_back(media):
    assert media_from_array({"media": media.array}, media.metadata(), 20) == media
    assert media != "another thing"


def test_pictures_and_sounds_are_equal_when_everything_in_them_is():
    assert Image(picture(), (4, 5)) == Image(picture(), (4, 5)) != Image(picture(), (5, 4))
    assert Image(picture(), (4, 5)) != Image(picture(seed=1), (4, 5))
    assert Sound(sound(9)[0], 8000) != Sound(sound(9)[0], 9000)


@pytest.mark.parametrize(
    ("tensor", "metadata"),
    [
        (torch.zeros(4, 4, 3), {"kind": "image", "grid": [2, 2]}),
        (torch.zeros(4, 4, dtype=torch.uint8), {"kind": "image", "grid": [2, 2]}),
        (torch.zeros(4, 4, 3, dtype=torch.uint8), {"kind": "image", "grid": [2, 3]}),
        (torch.zeros(0, 4, 3, dtype=torch.uint8), {"kind": "image", "grid": [2, 2]}),
        (torch.zeros(4, 4), {"kind": "sound", "rate": 8000}),
        (torch.full((4,), torch.inf), {"kind": "sound", "rate": 8000}),
        (torch.zeros(0), {"kind": "sound", "rate": 8000}),
    ],
)
def test_what_does_not_fit_is_refused(tensor, metadata):
    with pytest.raises(ValueError, match="media"):
        media_from_array({"media": tensor.numpy()}, metadata, 4)


@pytest.mark.parametrize(("make", "item"), [(viewer, picture()), (listener, sound(960))])
def test_attributions_are_compared_with_what_was_seen(make, item, tmp_path):
    att = gaflow.Explainer(*make())(item)
    for name in ("a.safetensors", "a.json"):
        att.save(tmp_path / name)
        loaded = gaflow.load(tmp_path / name)
        assert loaded == att
        assert loaded.media == att.media
    assert "media" not in att.to_dict()
    assert len(att.words()) == (~att.special_mask).sum()
    assert np.abs(att.normalized()).max() == 1
