import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image as pillow
from transformers import (
    Dinov2WithRegistersConfig,
    SwinConfig,
    WhisperConfig,
    WhisperFeatureExtractor,
)

import gaflow
from gaflow.errors import MissingExtraError
from gaflow.inputs.media import Image
from tests.support.task_models import BODY, LABELS, listener, make, picture, sound, spectator, viewer

FRAME = 80  # samples that the convolutions of `listener` make the first frame of


def test_a_picture_is_the_same_however_it_is_given(tmp_path):
    explainer = gaflow.Explainer(*viewer())
    pixels = picture()
    pillow.fromarray(pixels).save(tmp_path / "dog.png")
    expected = explainer(pixels)
    forms = [
        pillow.fromarray(pixels),
        tmp_path / "dog.png",
        str(tmp_path / "dog.png"),
        pixels.transpose(2, 0, 1),
        torch.from_numpy(pixels),
        pixels.astype(np.float32) / 255,
    ]
    for item in forms:
        att = explainer(item)
        assert att.scores.tolist() == expected.scores.tolist()
        assert att.media == expected.media
    assert explainer(tmp_path / "dog.png").text == "dog.png"
    grey = explainer(pixels[..., 0])
    assert (grey.media.pixels[..., 0] == grey.media.pixels[..., 2]).all()  # type: ignore[union-attr]


def test_the_picture_is_what_the_model_saw():
    model, processor = viewer()
    pixels = picture(32, 32)
    att = gaflow.Explainer(model, processor)(pixels)
    assert isinstance(att.media, Image)
    assert (att.media.pixels == pixels).all()
    assert att.tokens[1:6] == (
        "row 1, column 1",
        "row 1, column 2",
        "row 1, column 3",
        "row 1, column 4",
        "row 2, column 1",
    )
    assert att.special_mask.tolist() == [True] + [False] * 16


def test_the_probability_is_the_model_s_own():
    model, processor = viewer()
    with torch.no_grad():
        expected = model(**processor(images=picture(), return_tensors="pt")).logits[0]
    att = gaflow.Explainer(model, processor)(picture())
    assert att.label == model.config.id2label[int(expected.argmax())]
    assert att.probability == pytest.approx(expected.softmax(0).max().item(), rel=1e-5)


def test_tokens_before_the_patches_are_special():
    config = Dinov2WithRegistersConfig(**BODY, image_size=32, patch_size=8, num_register_tokens=2, **LABELS)  # type: ignore[arg-type]
    att = gaflow.Explainer(*make("image-classification", config, viewer()[1]))(picture())
    assert att.tokens[:4] == ("[CLS]", "[extra 1]", "[extra 2]", "row 1, column 1")
    assert len(att.tokens) == 19


def test_a_hierarchy_of_patches_has_the_patches_of_its_first_layer():
    sizes = {
        "image_size": 32,
        "patch_size": 4,
        "embed_dim": 16,
        "depths": [2, 1],
        "num_heads": [2, 4],
        "window_size": 4,
    }
    config = SwinConfig(**sizes, **LABELS)
    att = gaflow.Explainer(*make("image-classification", config, viewer()[1]))(picture())
    assert att.media.grid == (8, 8)  # type: ignore[union-attr]
    assert len(att.tokens) == 64
    assert not att.special_mask.any()


@pytest.mark.parametrize(
    ("item", "error", "message"),
    [
        (np.zeros((2, 3, 4, 5), dtype=np.uint8), ValueError, r"shape \(2, 3, 4, 5\), not \(h, w, 3\)"),
        (np.zeros((4, 5, 2), dtype=np.uint8), ValueError, "shape"),
        (np.full((4, 5, 3), 300), ValueError, "0 to 1.*int64"),
        (np.full((4, 5, 3), np.nan), ValueError, "must hold bytes"),
        ("nowhere.png", ValueError, "text.*'nowhere.png'"),
        (3, TypeError, "Pillow.*path.*array.*int"),
    ],
)
def test_what_is_no_picture_is_named(item, error, message):
    with pytest.raises(error, match=message):
        gaflow.Explainer(*viewer())(item)


def test_a_file_that_is_no_picture_is_named(tmp_path):
    (tmp_path / "a.png").write_bytes(b"garbage")
    with pytest.raises(ValueError, match=r"a.png'"):
        gaflow.Explainer(*viewer())(tmp_path / "a.png")


def test_without_pillow_the_extra_is_named(monkeypatch):
    explainer = gaflow.Explainer(*viewer())
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingExtraError, match=r"gaflow\[image\]"):
        explainer(picture())


def test_without_pillow_a_folder_of_a_model_of_pictures_names_the_extra(monkeypatch, tmp_path):
    model, processor = viewer()
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingExtraError, match=r"gaflow\[image\]"):
        gaflow.Explainer(tmp_path)


def test_a_model_object_needs_its_image_processor_or_feature_extractor():
    with pytest.raises(ValueError, match=r"Explainer\(model, image_processor\)"):
        gaflow.Explainer(viewer()[0])
    with pytest.raises(ValueError, match=r"Explainer\(model, feature_extractor\)"):
        gaflow.Explainer(listener()[0])


def test_frames_lie_where_the_convolutions_read():
    att = gaflow.Explainer(*listener())(sound(1000))
    assert len(att.tokens) == 12
    assert att.offsets[:2] == ((0, 80), (80, 160))
    assert att.tokens[:2] == ("0.000-0.010 s", "0.010-0.020 s")
    assert att.text == "a sound of 0.12 s"
    samples, rate = sound(1000)
    named = gaflow.Explainer(*listener())({"array": samples, "sampling_rate": np.int64(rate)})
    assert named.scores.tolist() == att.scores.tolist()


def test_a_spectrogram_has_bands_over_time_and_silence_is_special():
    att = gaflow.Explainer(*spectator())(sound(1200))
    bands, times = 4, 9
    assert att.tokens[:3] == ("[CLS]", "[extra 1]", "band 1, 0.000-0.020 s")
    assert len(att.tokens) == 2 + bands * times
    assert att.tokens[2 + times] == "band 2, 0.000-0.020 s"
    assert att.special_mask.sum() == 2 + bands  # the sound ends after 0.15 s of 0.18 s
    assert "<svg" in att.to_html()


def test_silence_that_fills_up_a_sound_is_special():
    size = {"d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 48, "num_mel_bins": 16}
    config = WhisperConfig(**size, max_source_positions=50, classifier_proj_size=16, **LABELS)  # type: ignore[arg-type]
    extractor = WhisperFeatureExtractor(feature_size=16, chunk_length=1)
    samples = sound(8000)[0]
    att = gaflow.Explainer(*make("audio-classification", config, extractor))((samples, 16000))
    assert len(att.tokens) == 50
    assert att.offsets[1] == (320, 640)
    assert att.special_mask.tolist() == [False] * 25 + [True] * 25


@pytest.mark.parametrize(
    ("item", "error", "message"),
    [
        (sound(900)[0], TypeError, r"\(samples, rate\).*ndarray"),
        ("speech.wav", TypeError, "not str"),
        ((sound(900)[0], 16000), ValueError, "16000.*8000"),
        ((sound(900)[0], 8000.0), ValueError, "whole number"),
        ((np.zeros((2, 900)), 8000), ValueError, r"one channel, not float64 \(2, 900\)"),
        ((np.zeros(900, dtype=np.int16), 8000), ValueError, "not int16"),
        ((np.full(900, np.inf), 8000), ValueError, "not all finite"),
        ((np.zeros(FRAME - 1), 8000), ValueError, f"{FRAME - 1} samples.* {FRAME}"),
    ],
)
def test_what_is_no_sound_is_named(item, error, message):
    with pytest.raises(error, match=message):
        gaflow.Explainer(*listener())(item)


@pytest.mark.parametrize("make_one", [viewer, listener])
def test_a_model_is_loaded_from_a_folder_with_what_reads_its_input(make_one, tmp_path: Path):
    model, reader = make_one()
    model.save_pretrained(tmp_path)
    reader.save_pretrained(tmp_path)
    item = picture() if make_one is viewer else sound(900)
    att, expected = gaflow.Explainer(tmp_path)(item), gaflow.Explainer(model, reader)(item)
    assert np.abs(att.scores - expected.scores).max() <= 1e-6 * expected.scores.max()
