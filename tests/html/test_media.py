import base64
import io
import re
from dataclasses import replace

import numpy as np
from PIL import Image as pillow

import gaflow
from gaflow.html import page
from gaflow.view.media import heat_map
from tests.support.dom import parse
from tests.support.task_models import listener, picture, sound, viewer

PICTURE = gaflow.Explainer(*viewer())(picture())
SOUND = gaflow.Explainer(*listener())(sound(960))


def test_the_page_has_picture_and_heat_map_in_it():
    html = page(PICTURE)
    images = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt', html)
    pictures = [np.asarray(pillow.open(io.BytesIO(base64.b64decode(image)))) for image in images]
    assert len(pictures) == 2
    assert (pictures[0] == PICTURE.media.pixels).all()  # type: ignore[union-attr]
    assert (pictures[1] == heat_map(PICTURE)).all()
    assert "img-src data:" in html
    assert "://" not in html
    assert "img-src" not in page(SOUND)


def test_names_of_files_are_escaped():
    hostile = '"><script>alert(1)</script>.png'
    html = page(replace(PICTURE, text=hostile, label=hostile))
    assert "<script" not in html
    assert parse(html)


def test_a_sound_has_a_box_for_every_frame_with_its_time_and_score():
    att = replace(SOUND, scores=np.array([*range(11), -11.0]), layers=None, flow=None, certificate=None)
    html = page(att)
    assert html.count("<rect") == 12
    assert "<title>0.01 to 0.02 s: 1</title>" in html
    assert html.count("stroke-dasharray") == 1
