import numpy as np
import pytest
import torch

import gaflow
from gaflow.errors import UnsupportedModelError
from gaflow.methods import IntegratedGradients, KernelShap
from gaflow.methods.media_removal import MediaRemoval, removal_for
from gaflow.methods.token_removal import TokenRemoval
from tests.support.task_models import bert, listener, picture, sound, viewer
from tests.support.traces import TraceRecorder

CLASS = 1


def traced_model_of(make, item):
    recorder = TraceRecorder()
    gaflow.Explainer(*make())(item, recorder, CLASS)
    return recorder.traces[0].require_model()


def explained_logit(traced_model, values):
    """The explained logit for other values of the input, from the model itself."""
    (name,) = traced_model.batch.inputs
    with torch.no_grad():
        return traced_model.model(**{name: values}).logits[:, CLASS]


@pytest.mark.parametrize(("make", "item"), [(viewer, picture()), (listener, sound(960))])
def test_what_is_there_is_the_input_and_what_is_not_is_nothing(make, item):
    traced_model = traced_model_of(make, item)
    text = MediaRemoval(traced_model, 0, None, None)
    (values,) = traced_model.batch.inputs.values()
    both = text.outputs(torch.cat([text.uniform_inclusion(1.0), text.uniform_inclusion(0.0)]))
    left = torch.zeros_like(values)
    if make is listener:
        left[:, 12 * 80 :] = values[:, 12 * 80 :]  # samples that no frame reaches
    expected = torch.cat([explained_logit(traced_model, values), explained_logit(traced_model, left)])
    assert torch.allclose(both, expected, rtol=1e-5)


def test_one_patch_away_is_its_pixels_away():
    traced_model = traced_model_of(viewer, picture())
    text = MediaRemoval(traced_model, 0, None, None)
    inclusion = text.uniform_inclusion(1.0)
    inclusion[0, 6] = 0.0  # the third of the second row
    (values,) = traced_model.batch.inputs.values()
    changed = values.clone()
    changed[:, :, 8:16, 16:24] = 0
    assert torch.allclose(text.outputs(inclusion), explained_logit(traced_model, changed), rtol=1e-5)


def test_one_frame_away_is_its_samples_away():
    traced_model = traced_model_of(listener, sound(960))
    text = MediaRemoval(traced_model, 0, None, None)
    inclusion = text.uniform_inclusion(1.0)
    inclusion[0, 2] = 0.5
    (values,) = traced_model.batch.inputs.values()
    changed = values.clone()
    changed[:, 160:240] *= 0.5
    assert torch.allclose(text.outputs(inclusion), explained_logit(traced_model, changed), rtol=1e-5)


def test_integrated_gradients_are_those_of_the_pixels_summed_over_patches():
    explainer = gaflow.Explainer(*viewer())
    att = explainer(picture(), IntegratedGradients(steps=5), CLASS)
    traced_model = traced_model_of(viewer, picture())
    (values,) = traced_model.batch.inputs.values()
    nodes, weights = np.polynomial.legendre.leggauss(5)
    total = torch.zeros_like(values)
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        leaf = (node * values).detach().float().requires_grad_()
        (slope,) = torch.autograd.grad(traced_model.model(pixel_values=leaf).logits[:, CLASS].sum(), leaf)
        total += weight * slope
    pixels = (total * values).sum(1)[0]  # (32, 32)
    expected = pixels.reshape(4, 8, 4, 8).sum((1, 3)).flatten()
    assert np.abs(att.scores[1:] - expected.numpy()).max() <= 1e-4 * expected.abs().max().item()
    assert att.scores[0] == 0
    assert att.diagnostics["replacement"] == "mean colour"


def test_shapley_values_of_a_short_sound_add_up():
    explainer = gaflow.Explainer(*listener())
    att = explainer(sound(560), KernelShap(samples=200), CLASS)
    assert len(att.tokens) == 7
    assert abs(float(att.diagnostics["convergence_delta"])) < 1e-4
    assert att.scores.sum() == pytest.approx(att.output - float(att.diagnostics["baseline_output"]), abs=1e-4)
    assert att.diagnostics["replacement"] == "silence"


def test_texts_keep_to_word_embeddings():
    traced_model = traced_model_of(lambda: bert("text-classification"), "a good film")
    assert isinstance(removal_for(traced_model, 0, None, None), TokenRemoval)
    assert isinstance(removal_for(traced_model_of(viewer, picture()), 0, None, None), MediaRemoval)


def test_a_token_cannot_replace_a_patch():
    with pytest.raises(ValueError, match="replacement 'pad'"):
        gaflow.Explainer(*viewer())(picture(), IntegratedGradients(replacement="pad"))


def test_what_was_computed_from_samples_cannot_be_taken_away():
    from tests.support.task_models import spectator

    with pytest.raises(UnsupportedModelError, match=r"method.*trace"):
        gaflow.Explainer(*spectator())(sound(1600), "ig")
