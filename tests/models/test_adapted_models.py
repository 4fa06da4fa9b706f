"""Models that were adapted, compiled, checkpointed or built for decoding are explained as what they compute."""

import copy

import peft
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, PreTrainedTokenizerFast

import gaflow
from tests.support.models import SENTENCE, bert, byte_bpe

DECODER = {
    "vocab_size": 400,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"


def chat_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = copy.deepcopy(byte_bpe())
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def decoder(kind, config, **changes):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind(config(**DECODER | changes)).eval()


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of peft, about transformers
@pytest.mark.parametrize("method", ["peeled_flow", "agf", "attcat"])
def test_an_adapter_is_explained_as_the_model_that_it_is_merged_into(method):
    model, tokenizer = bert()
    config = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query", "value"], init_lora_weights=False)
    before = gaflow.Explainer(copy.deepcopy(model), tokenizer)(SENTENCE, method)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        adapted = peft.get_peft_model(model, config).eval()
    explained = gaflow.Explainer(adapted, tokenizer)(SENTENCE, method)
    merged = gaflow.Explainer(adapted.merge_and_unload(), tokenizer)(SENTENCE, method)
    assert explained.scores.tolist() == pytest.approx(merged.scores.tolist(), rel=1e-4, abs=1e-7)
    assert explained.scores.tolist() != pytest.approx(before.scores.tolist(), rel=1e-2)


def test_a_compiled_model_shows_its_task_and_is_explained_as_before():
    model, tokenizer = bert()
    plain = gaflow.Explainer(model, tokenizer)(SENTENCE)
    explainer = gaflow.Explainer(torch.compile(model), tokenizer)
    assert explainer.task == "text-classification"
    compiled = explainer(SENTENCE)
    assert compiled.scores.tolist() == plain.scores.tolist()
    assert compiled.provenance == plain.provenance


@pytest.mark.filterwarnings("ignore::FutureWarning")  # which name the method has depends on the version of transformers
def test_checkpointed_gradients_change_no_score():
    model, tokenizer = bert()
    plain = gaflow.Explainer(model, tokenizer)(SENTENCE)
    model.gradient_checkpointing_enable()
    model.train()
    assert gaflow.Explainer(model, tokenizer)(SENTENCE).scores.tolist() == plain.scores.tolist()
    assert model.training
    assert model.is_gradient_checkpointing


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_heads_that_share_keys_count_as_heads_of_their_own(dtype):
    """A model with as many keys as queries, made by repeating the shared ones, computes the same."""
    grouped = decoder(LlamaForCausalLM, LlamaConfig).to(dtype)
    separate = decoder(LlamaForCausalLM, LlamaConfig, num_key_value_heads=4).to(dtype)
    weights = grouped.state_dict()
    for name, weight in weights.items():
        if "k_proj" in name or "v_proj" in name:
            weights[name] = weight.unflatten(0, (2, 8)).repeat_interleave(2, 0).flatten(0, 1)
    separate.load_state_dict(weights)
    results = [gaflow.Explainer(model, byte_bpe())("the dog is", "agf") for model in (grouped, separate)]
    tolerance = {torch.float32: 1e-4, torch.bfloat16: 2e-2}[dtype]  # sums over heads are rounded in another order
    assert results[0].scores.tolist() == pytest.approx(results[1].scores.tolist(), rel=tolerance, abs=1e-7)
    certificate = results[0].certificate
    assert certificate is not None
    assert certificate.converged


def test_no_flow_leaves_a_sliding_window():
    model = decoder(MistralForCausalLM, MistralConfig, sliding_window=3)
    att = gaflow.Explainer(model, byte_bpe())(SENTENCE, "agf")
    assert att.flow is not None
    edges = att.flow.edges[0]
    t = edges.shape[-1]
    distance = torch.arange(t)[:, None] - torch.arange(t)  # of the key behind the query
    assert t > 6
    outside = (distance < 0) | (distance > 2)
    assert edges[:, outside].abs().max() == 0
    assert edges[:, ~outside].abs().max() > 0


def test_a_text_of_a_chat_template_is_what_the_model_reads_in_use():
    model = decoder(LlamaForCausalLM, LlamaConfig)
    tokenizer = chat_tokenizer()
    messages = [{"role": "user", "content": "the dog is not cute"}]
    text = str(tokenizer.apply_chat_template(messages, tokenize=False))
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
    assert ids[0, :2].tolist().count(tokenizer.bos_token_id) == 1
    with torch.no_grad():
        expected = model(ids).logits[0, -1].softmax(-1)
    att = gaflow.Explainer(model, tokenizer)(text, "agf")
    assert list(att.tokens) == tokenizer.convert_ids_to_tokens(ids[0].tolist())
    assert att.probability == pytest.approx(expected.max().item(), rel=1e-5)
    assert att.special_mask[0]
    assert att.special_mask[-1]
