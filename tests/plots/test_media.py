import numpy as np
import pytest

import gaflow
from gaflow.plots import media
from gaflow.view.media import heat_map
from tests.support.models import bert
from tests.support.task_models import listener, picture, sound, viewer


def test_a_picture_stands_beside_its_heat_map():
    att = gaflow.Explainer(*viewer())(picture())
    (sheet,) = att.plot().axes
    left, right = sheet.get_images()
    assert (np.asarray(left.get_array()) == att.media.pixels).all()  # type: ignore[union-attr]
    assert (np.asarray(right.get_array()) == heat_map(att)).all()
    lines = [text.get_text() for text in sheet.texts]
    assert lines[0].startswith(att.label)
    assert any("per patch" in line for line in lines)


def test_a_sound_has_its_frames_over_time():
    att = gaflow.Explainer(*listener())(sound(960))
    (sheet,) = att.plot().axes
    lines = [text.get_text() for text in sheet.texts]
    assert "0 s" in lines
    assert "0.12 s" in lines
    boxes = max((c for c in sheet.collections if hasattr(c, "get_paths")), key=lambda c: len(c.get_paths()))
    assert len(boxes.get_paths()) >= 12


def test_a_text_is_drawn_elsewhere():
    with pytest.raises(ValueError, match=r"gaflow\.plots\.bars"):
        media(gaflow.Explainer(*bert())("a good film"))
