"""Models that other libraries quantise; each test runs where its library is installed, see docs/howto/loading.md."""

import pytest
import torch

import gaflow
from gaflow.errors import UnsupportedModelError
from tests.support.commands import saved
from tests.support.models import SENTENCE, bert

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries
BITS = [{"load_in_8bit": True}, {"load_in_4bit": True}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    wide = bert(hidden_size=128, intermediate_size=256)  # bitsandbytes packs weights in blocks
    return str(saved(wide, tmp_path_factory.mktemp("model")))


def scores(explainer, method="agf"):
    return explainer(SENTENCE, method).scores


def dequantised(folder, weights):
    """The model of `folder` with these weights."""
    plain = gaflow.Explainer(folder, device="cpu")
    with torch.no_grad():
        for name, weight in plain.model.named_parameters():
            weight.copy_(weights[name])
    return plain


def test_int8_weights_of_torchao_are_explained_as_their_dequantised_values(folder):
    quantization = pytest.importorskip("torchao.quantization")
    from transformers import TorchAoConfig

    config = TorchAoConfig(quantization.Int8WeightOnlyConfig())
    quantised = gaflow.Explainer(folder, device="cpu", quantization_config=config)
    weights = {}
    for name, weight in quantised.model.named_parameters():
        weights[name] = weight.dequantize() if hasattr(weight, "qdata") else weight
    plain = dequantised(folder, weights)
    assert any(hasattr(weight, "qdata") for weight in quantised.model.parameters())
    for method in ("agf", "peeled_flow"):
        assert scores(quantised, method).tolist() == pytest.approx(scores(plain, method).tolist(), rel=1e-3, abs=1e-6)
    assert isinstance(quantised(SENTENCE).provenance["weights"], str)


def test_int8_activations_of_torchao_have_no_gradient_and_are_refused(folder):
    quantization = pytest.importorskip("torchao.quantization")
    from transformers import TorchAoConfig

    config = TorchAoConfig(quantization.Int8DynamicActivationInt8WeightConfig())
    explainer = gaflow.Explainer(folder, device="cpu", quantization_config=config)
    with pytest.raises(UnsupportedModelError):
        explainer(SENTENCE, "agf")


@pytest.mark.parametrize("bits", BITS)
def test_a_model_that_bitsandbytes_quantised_is_explained_alike_when_saved_and_loaded(folder, tmp_path, bits):
    pytest.importorskip("bitsandbytes")
    quantised = gaflow.Explainer(folder, device="cpu", quantization_config={"quant_method": "bitsandbytes", **bits})
    attribution = quantised(SENTENCE, "agf")
    assert attribution.certificate is not None
    assert attribution.certificate.converged
    assert attribution.scores.tolist() != pytest.approx(scores(gaflow.Explainer(folder)).tolist(), rel=1e-3)
    again = gaflow.Explainer(saved((quantised.model, quantised.tokenizer), tmp_path), device="cpu")
    assert scores(again).tolist() == pytest.approx(attribution.scores.tolist(), rel=1e-5)


def test_4_bit_weights_that_are_packed_for_a_cpu_are_refused(folder):
    pytest.importorskip("bitsandbytes")
    skipped = {"llm_int8_skip_modules": ["classifier"]}  # too narrow to be packed
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, **skipped}
    explainer = gaflow.Explainer(folder, device="cpu", quantization_config=config)
    assert scores(explainer).any()
    explainer(SENTENCE, gaflow.METHODS["occlusion"])  # passes without gradients
    state = explainer.model.bert.encoder.layer[0].attention.self.query.weight.quant_state
    if not getattr(state, "packing_format_for_cpu", False):
        pytest.skip("bitsandbytes does not pack weights for this CPU")
    with pytest.raises(UnsupportedModelError):
        explainer(SENTENCE, "agf")
