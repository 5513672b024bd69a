"""Convert the model of `tiny.py` to GGUF, for llama-cpp-python.

    python -m benchmarks.serving.gguf_model MODEL FILE.gguf

It needs gguf, safetensors and numpy. Its weights are those of the Hugging Face model, in float32.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
NORMAL, CONTROL = 1, 3  # types of tokens


def convert(model: Path, file: Path) -> None:
    """Write the GGUF file."""
    import gguf
    from safetensors.numpy import load_file

    config = json.loads((model / "config.json").read_text())
    writer = gguf.GGUFWriter(file, "qwen2")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(10_000.0)
    _add_tokenizer(writer, json.loads((model / "tokenizer.json").read_text()))
    for name, values in load_file(model / "model.safetensors").items():
        writer.add_tensor(_name(name), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _name(name: str) -> str:
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    _, _, number, rest = name.split(".", 3)
    part, _, kind = rest.rpartition(".")
    return f"blk.{number}.{LAYER[part]}.{kind}"


def _add_tokenizer(writer: Any, tokenizer: dict[str, Any]) -> None:
    vocabulary = tokenizer["model"]["vocab"]
    special = {token["id"] for token in tokenizer["added_tokens"]}
    words = sorted(vocabulary, key=vocabulary.__getitem__)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(words)
    writer.add_token_types([CONTROL if number in special else NORMAL for number in range(len(words))])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
