"""Models have the published parameters and FLOPs; configurations that cannot be are refused."""

from __future__ import annotations

import json

import pytest

from fathom.errors import BadInputError
from fathom.planner.workload import convention as named
from fathom.planner.workload import (
    flops_per_token,
    known_models,
    matmuls,
    model,
    parse_config,
    translate,
)

# Total and active billions of parameters, as the model cards and reports state them.
PUBLISHED = {
    "gpt2": (0.124, 0.124),
    "gpt2-xl": (1.558, 1.558),
    "llama2-7b": (6.74, 6.74),
    "llama2-70b": (68.98, 68.98),
    "llama3-8b": (8.03, 8.03),
    "llama3-70b": (70.55, 70.55),
    "llama3.1-405b": (405.85, 405.85),
    "llama-3.2-1b": (1.24, 1.24),
    "mistral-7b": (7.24, 7.24),
    "mixtral-8x7b": (46.7, 12.9),
    "grok1-314b": (314.0, 86.0),
    "gemma-2-9b": (9.24, 9.24),
    "qwen2.5-7b": (7.62, 7.62),
    "qwen3-30b-a3b": (30.5, 3.3),
    "qwen3-235b-a22b": (235.0, 22.0),
    "qwen3-next-80b-a3b": (80.0, 3.9),
    "gpt-oss-20b": (20.9, 4.2),
    "gpt-oss-120b": (116.8, 5.7),
    "deepseek-v2": (236.0, 21.0),
    "deepseek-v3": (671.0, 37.5),
    "kimi-k2": (1026.0, 32.9),
    "glm-4.5": (355.0, 33.0),
    "llama-4-maverick": (400.0, 17.5),
    "qwen3.5-397b-a17b": (397.0, 17.0),
    "gptj-6b": (6.05, 6.05),
    "mamba2-2.7b": (2.70, 2.70),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_match_the_model_card(name):
    total, active = PUBLISHED[name]
    assert model(name).parameters / 1e9 == pytest.approx(total, rel=0.01)
    assert model(name).active_parameters / 1e9 == pytest.approx(active, rel=0.04)


# Tokens of a sequence, as the model cards state them.
CONTEXTS = {"gpt2": 1024, "mpt-30b": 8192, "llama3-8b": 8192, "llama-3.3-70b-instruct": 128 * 1024}
CONTEXTS |= {"gemma-3-27b": 128 * 1024, "deepseek-r1": 160 * 1024, "llama-4-scout": 10 * 1024**2}


@pytest.mark.parametrize("name", CONTEXTS)
def test_the_context_is_that_of_the_model_card(name):
    assert model(name).context == CONTEXTS[name]


def test_scaled_rotary_embeddings_lengthen_the_context():
    # Of the model cards of Qwen2.5 Instruct: 32,768 tokens, and 131,072 with this rope_scaling.
    spec = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}
    spec |= {"model_type": "qwen2", "max_position_embeddings": 32768}
    scaling = {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}
    assert parse_config(spec).context == 32768
    assert parse_config(spec | {"rope_scaling": scaling}).context == 131_072
    # Llama 3.1 states the length with its scaling.
    llama = {"factor": 8.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}
    assert parse_config(spec | {"max_position_embeddings": 131_072, "rope_scaling": llama}).context == 131_072
    assert parse_config({k: v for k, v in spec.items() if k != "max_position_embeddings"}).context is None


def test_hybrids_of_mamba_and_attention_have_the_published_parameters():
    # ai21labs/Jamba-v0.1: 52 billion, 12 active; ibm-granite/granite-4.0-h-tiny: 7 billion.
    jamba = {"model_type": "jamba", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
    jamba |= {"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 65536, "num_experts": 16}
    jamba |= {"num_experts_per_tok": 2, "attn_layer_period": 8, "attn_layer_offset": 4, "mamba_expand": 2}
    jamba |= {"expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 16}
    of = parse_config(jamba)
    assert of.parameters / 1e9 == pytest.approx(51.6, rel=0.01)
    assert of.active_parameters / 1e9 == pytest.approx(12.1, rel=0.02)
    kinds = ["attention" if i in (5, 15, 25, 35) else "mamba" for i in range(40)]
    granite = {
        "model_type": "granitemoehybrid",
        "hidden_size": 1536,
        "num_hidden_layers": 40,
        "layer_types": kinds,
    }
    granite |= {"num_attention_heads": 12, "num_key_value_heads": 4, "intermediate_size": 512}
    granite |= {"shared_intermediate_size": 1024, "num_local_experts": 64, "num_experts_per_tok": 6}
    granite |= {"mamba_n_heads": 48, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1}
    granite |= {"mamba_expand": 2, "vocab_size": 100352, "tie_word_embeddings": True}
    of = parse_config(granite)
    assert of.parameters / 1e9 == pytest.approx(6.94, rel=0.02)


def test_layers_of_an_unknown_kind_are_refused():
    spec = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}
    with pytest.raises(BadInputError, match="kind 'retention', which a plan does not know"):
        parse_config(spec | {"layer_types": ["full_attention", "retention"]})
    with pytest.raises(BadInputError, match="kind 'M'"):
        parse_config(spec | {"hybrid_override_pattern": "M-M*"})


def test_megatrons_formula_counts_the_same_flops():
    # arXiv:2104.04473, equation 3: 96 B s l h² (1 + s / 6h + V / 16 l h), with full recomputation
    gpt, h, layers, vocab, seq = model("gpt3-175b"), 12288, 96, 51200, 2048
    formula = 96 * layers * h**2 * (1 + seq / (6 * h) + vocab / (16 * layers * h))
    assert flops_per_token(gpt, seq, named("hfu")) == pytest.approx(formula, rel=0.001)


def test_the_mfu_of_mosaicml_counts_six_n_and_the_square_of_attention():
    mpt, seq = model("mpt-7b"), 2048
    counted = 6 * mpt.parameters + 12 * 32 * 4096 * seq
    assert flops_per_token(mpt, seq, named("6n")) == pytest.approx(counted, rel=0.001)


def test_conventions_translate_there_and_back():
    llama = model("llama3-8b")
    full = translate(llama, 8192, 0.40, "model", "full")
    assert full > 0.40
    assert translate(llama, 8192, full, "full", "model") == pytest.approx(0.40)


def test_a_window_limits_attention_and_the_cache():
    spec = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    spec |= {"vocab_size": 100, "sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"]}
    small = parse_config(spec)
    assert small.kv_elements(32) == 2 * 64 * (32 + 8)
    # Tokens that each token sees, counted one by one: the mean of (i + 1/2), and of those in the window.
    exact = [sum(min(i + 0.5, 8) for i in range(32)) / 32, sum(i + 0.5 for i in range(32)) / 32]
    assert {round(b.mixer.window or 0) for b in small.blocks} == {0, 8}
    pure = flops_per_token(small, 32, named("model")) - 6 * sum(
        b.count * sum(m.parameters for m in matmuls(b, 64)) for b in small.blocks
    )
    mixing = (pure - 6 * 100 * 64) / 3
    assert mixing == pytest.approx(4 * 64 * sum(exact), rel=0.02)


def test_a_config_file_is_the_model(tmp_path):
    spec = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
    spec |= {"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256}
    (tmp_path / "config.json").write_text(json.dumps(spec))
    assert model(str(tmp_path)).parameters == model("llama3-8b").parameters
    assert model("meta-llama/Llama-3.1-8B").parameters == model("llama3-8b").parameters


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_attention_heads": 30}, "nearest that works is 32 heads"),
        ({"num_key_value_heads": 5}, "do not divide"),
        ({"hidden_size": "wide"}, "no usable hidden_size"),
        ({"vocab_size": None}, "no usable vocab_size"),
    ],
)
def test_an_impossible_configuration_is_refused_in_one_sentence(change, words):
    spec = {"hidden_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 32, "vocab_size": 10}
    with pytest.raises(BadInputError, match=words):
        parse_config(spec | {"intermediate_size": 64} | change)


def test_an_unknown_model_names_the_nearest():
    with pytest.raises(BadInputError, match="the nearest is llama3-70b"):
        model("lama3-70b")
    assert len(known_models()) >= 40


@pytest.mark.parametrize(
    "odd",
    [
        {"num_attention_heads": 0},
        {"num_hidden_layers": 10**9},  # layers are read one by one
        {"hidden_size": 10**15},
        {"vision_config": 5},
        {"num_local_experts": 8, "decoder_sparse_step": 0},
    ],
)
def test_values_that_no_model_has_end_in_one_sentence(odd):
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}
    with pytest.raises(BadInputError):
        parse_config({"model_type": "llama", "intermediate_size": 128, **sizes, **odd})


def test_only_small_regular_files_are_read_as_configurations(tmp_path):
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(BadInputError, match="larger than"):
        model(str(tmp_path / "huge.json"))
    (tmp_path / "deep.json").write_text("[" * 20_000)
    with pytest.raises(BadInputError, match="not valid"):
        model(str(tmp_path / "deep.json"))
