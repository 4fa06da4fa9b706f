"""A batch for a tokenizer, the state of a model, and the output that most tests of tracing explain."""

import torch

from gaflow.inputs.batch import Padding, collate
from gaflow.inputs.encoding import encode
from tests.support.models import SENTENCE

SHORT = "a good film"


def make_batch(tokenizer, texts=(SENTENCE, SHORT)):
    return collate(encode(tokenizer, texts), Padding(tokenizer.pad_token_id))


def first_logit(_):
    return lambda logits, items: logits[:, 0]


def state(model):
    """Everything about a model that a trace could disturb."""
    modules = {
        name: (
            m.training,
            list(m._forward_hooks),
            list(m._forward_pre_hooks),
            list(m._backward_hooks),
            set(vars(m)),
        )
        for name, m in model.named_modules()
    }
    weights = {name: (p.requires_grad, p.grad, p._version) for name, p in model.named_parameters()}
    configs = {id(m.config): m.config._attn_implementation for m in model.modules() if hasattr(m, "config")}
    return modules, weights, configs, torch.get_rng_state().tolist(), torch.is_grad_enabled()


def assert_close(a, b, tolerance=2e-5):
    assert a.shape == b.shape
    scale = max(1.0, b.abs().max().item())
    assert (a - b).abs().max().item() <= tolerance * scale
