"""Models from the table of public ones, a Hugging Face `config.json`, or a YAML file of the same keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from fathom.data import load
from fathom.errors import BadInputError, file_error, nearest
from fathom.planner.workload.model import (
    Attention,
    Block,
    Dense,
    Experts,
    Latent,
    Mixer,
    Model,
    Recurrent,
    Vision,
)
from fathom.regular import read_regular
from fathom.units import MIB

MOST, LARGEST_SIZE = {"layers": 10_000}, 10**9  # layers are read one by one
NEEDED = ("hidden", "vocab", "layers")  # 0 of which no model has
LARGEST = MIB  # bytes of a configuration; parsing YAML takes seconds per MiB
_UNGATED = {
    "gpt2",
    "gpt_neox",
    "gptj",
    "opt",
    "mpt",
    "bloom",
    "falcon",
    "nemotron",
    "phi",
    "starcoder2",
    "megatron",
}
_NAMES = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "n_head_kv", "num_kv_heads"),
    "ffn": ("intermediate_size", "n_inner", "ffn_hidden_size"),
    "vocab": ("vocab_size",),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts"),
    "context": (
        "max_position_embeddings",
        "n_positions",
        "n_ctx",
        "max_sequence_length",
        "max_seq_len",
        "seq_length",
    ),
    "mamba_heads": ("mamba_num_heads", "mamba_n_heads"),
    "mamba_width": ("mamba_head_dim", "mamba_d_head"),
    "mamba_state": ("ssm_state_size", "mamba_d_state"),
    "mamba_groups": ("n_groups", "mamba_n_groups"),
    "active": ("num_experts_per_tok", "experts_per_token", "moe_topk"),
}
_FULL, _SLIDING, _LINEAR = "full_attention", "sliding_attention", "linear_attention"
_KINDS = {  # of layers, by the names that families give them
    **dict.fromkeys((_FULL, "attention"), _FULL),
    **dict.fromkeys((_SLIDING, "chunked_attention"), _SLIDING),
    **dict.fromkeys((_LINEAR, "mamba", "mamba2"), _LINEAR),
}
_WIDTH_OF_HEAD = 64  # channels of Mamba that share a head; the first version has no heads


def known_models() -> list[str]:
    """Return the names of the public models in the table."""
    return list(_table())


Config = dict[str, Any]  # a Hugging Face config.json


def model(name: str) -> Model:
    """Return a public model by name, or the one of a config file. Raises BadInputError."""
    path = Path(name)
    if path.suffix in (".json", ".yaml", ".yml") or path.is_dir():
        return parse_config(_read(path / "config.json" if path.is_dir() else path), name=path.stem)
    key = name.lower().rsplit("/", 1)[-1]
    if key not in _table():
        hint = nearest(key, known_models(), "`fathom plan models` lists them")
        raise BadInputError(f"{name!r} is not a known model; {hint}, or give the path of its config.json.")
    return parse_config(_table()[key], name=key)


@cache
def _table() -> dict[str, Config]:
    return load("fathom.planner.workload", "models")


def _read(path: Path) -> Config:
    import yaml

    try:
        config = yaml.safe_load(read_regular(path, LARGEST))  # JSON is YAML
    except OSError as error:
        raise BadInputError(file_error(path, error)) from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise BadInputError(f"{path} is not valid JSON or YAML; give a Hugging Face config.json.") from None
    if not isinstance(config, dict):
        raise BadInputError(f"{path} is not a model's configuration; give a Hugging Face config.json.")
    return config


def parse_config(config: Config, name: str = "model") -> Model:
    """Return the model of a Hugging Face configuration; raises BadInputError for missing or odd sizes."""
    try:
        return _parsed(config, name)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        raise BadInputError(
            f"The configuration of {name} has values that no model has; give a Hugging Face config.json."
        ) from None


def _parsed(config: Config, name: str) -> Model:
    text = config.get("text_config") or config
    read = _Reader(text, name)
    hidden = read("hidden")
    blocks = tuple(_blocks(read, hidden))
    return Model(
        name=str(config.get("name") or config.get("_name_or_path") or name),
        hidden=hidden,
        vocab=read("vocab"),
        blocks=blocks,
        tied=bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", read.kind == "gpt2"))),
        positions=_positions(read),
        predicted=int(text.get("num_nextn_predict_layers") or 0),
        vision=_vision(config.get("vision_config")),
        source=str(config.get("source", "its config.json")),
        context=_context(read),
        repository=str(config.get("repository", "")),
    )


class _Reader:
    """Reads sizes under the names that families of models give them."""

    def __init__(self, config: Config, name: str) -> None:
        self.config, self.name = config, name
        self.kind = str(config.get("model_type", ""))

    def __call__(self, key: str, default: int | None = None) -> int:
        names = _NAMES.get(key, (key,))
        value = next((self.config[n] for n in names if self.config.get(n) is not None), default)
        least, most = int(key in NEEDED), MOST.get(key, LARGEST_SIZE)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise BadInputError(
                f"The configuration of {self.name} has no usable {names[0]} ({value!r}); add a whole number."
            )
        return value

    def flag(self, key: str, default: bool) -> bool:
        return bool(self.config.get(key, default))


def _blocks(read: _Reader, hidden: int) -> Iterator[Block]:
    """Yield the kinds of layers with their counts; their order does not change the work."""
    layers = Counter((_mixer(read, hidden, i), _mlp(read, hidden, i)) for i in range(read("layers")))
    for (mixer, mlp), count in layers.items():
        yield Block(count, mixer, mlp)


def _mixer(read: _Reader, hidden: int, layer: int) -> Mixer:
    config = read.config
    if config.get("kv_lora_rank"):
        return Latent(
            read("heads"),
            config.get("q_lora_rank"),
            read("kv_lora_rank"),
            read("qk_nope_head_dim"),
            read("qk_rope_head_dim"),
            read("v_head_dim"),
        )
    if _kind_of(read, layer) == _LINEAR:
        return _recurrent(read)
    heads = read("heads")
    if hidden % heads and "head_dim" not in config:
        raise BadInputError(
            f"{read.name} has a hidden size of {hidden}, which {heads} heads do not divide; "
            f"the nearest that works is {nearest_divisor(hidden, heads)} heads, or give head_dim."
        )
    groups = read("kv_heads", heads if not config.get("multi_query") else 1)
    if groups == 0 or heads % groups:
        raise BadInputError(f"{read.name} has {heads} heads, which {groups} key-value heads do not divide.")
    window = _window(config) if _kind_of(read, layer) == _SLIDING else None
    return Attention(
        heads, groups, int(config.get("head_dim") or hidden // heads), window, read.kind == "gpt_oss"
    )


def _window(config: Config) -> int | None:
    """Return how far back a token sees; attention within chunks sees half of one on average."""
    chunk: int | None = config.get("attention_chunk_size")
    return config.get("sliding_window") or (chunk // 2 if chunk else None)


def _named(read: _Reader, name: str) -> str:
    if name not in _KINDS:
        known = ", ".join(_KINDS)
        raise BadInputError(
            f"{read.name} has layers of kind {name!r}, which a plan does not know; it knows {known}."
        )
    return _KINDS[name]


def _kind_of(read: _Reader, layer: int) -> str:
    """Return the kind of a layer's mixer: from `layer_types`, a pattern, or the family's habit."""
    config = read.config
    kinds = config.get("layer_types") or config.get("layers_block_type")
    if kinds:
        return _named(read, str(kinds[layer % len(kinds)]))
    if pattern := config.get("hybrid_override_pattern"):
        return _named(read, str(pattern)[layer % len(pattern)])
    if period := config.get("attn_layer_period"):
        return _FULL if layer % period == config.get("attn_layer_offset", 0) else _LINEAR
    if pattern := config.get("sliding_window_pattern"):
        return _SLIDING if (layer + 1) % pattern else _FULL
    if interval := config.get("full_attention_interval"):
        return _LINEAR if (layer + 1) % interval else _FULL
    always = config.get("sliding_window") and config.get("use_sliding_window", read.kind == "mistral")
    return _SLIDING if always else _FULL


def _recurrent(read: _Reader) -> Recurrent:
    if "linear_num_value_heads" in read.config:  # gated DeltaNet
        heads, dim = read("linear_num_value_heads"), read("linear_value_head_dim")
        return Recurrent(heads, dim, read("linear_key_head_dim"), read("linear_num_key_heads"))
    if "mamba_expand" in read.config and "mamba_n_heads" not in read.config:
        inner = read("mamba_expand") * read("hidden")
        return Recurrent(inner // _WIDTH_OF_HEAD, _WIDTH_OF_HEAD, read("mamba_state"))
    return Recurrent(read("mamba_heads"), read("mamba_width"), read("mamba_state"), read("mamba_groups", 1))


def _mlp(read: _Reader, hidden: int, layer: int) -> Dense | Experts:
    config = read.config
    gated = read.flag("gated", read.kind not in _UNGATED)
    is_dense = (
        not any(config.get(n) for n in _NAMES["experts"])
        or layer < config.get("first_k_dense_replace", 0)
        or layer in (config.get("mlp_only_layers") or ())
        or (layer + 1) % config.get("decoder_sparse_step", 1) != 0
        or layer % config.get("expert_layer_period", 1) != config.get("expert_layer_offset", 0)
        or layer % config.get("interleave_moe_layer_step", 1)
        != config.get("interleave_moe_layer_step", 1) - 1
    )
    if is_dense:
        return Dense(read("intermediate_size_mlp", read("ffn", 4 * hidden)), gated)
    width = read("moe_intermediate_size", read("ffn"))
    shared = (
        config.get("shared_expert_intermediate_size")
        or config.get("shared_intermediate_size")
        or width * (config.get("n_shared_experts") or 0)
    )
    return Experts(read("experts"), read("active"), width, int(shared), gated)


def _positions(read: _Reader) -> int:
    learned = read.flag("learned_positions", read.kind in ("gpt2", "opt", "megatron"))
    names = ("n_positions", "n_ctx", "max_position_embeddings")
    return int(next((read.config[n] for n in names if n in read.config), 0)) if learned else 0


def _context(read: _Reader) -> int | None:
    """Return the most tokens of a sequence, with the scaling of rotary embeddings that engines apply."""
    stated = read("context", 0)
    scaling = read.config.get("rope_scaling") or read.config.get("rope_parameters") or {}
    kind, factor = scaling.get("rope_type") or scaling.get("type"), float(scaling.get("factor") or 1.0)
    if kind == "yarn":
        stated = max(stated, int(factor * scaling.get("original_max_position_embeddings", stated)))
    elif kind in ("linear", "dynamic") and not read.kind.startswith("gemma3"):  # its length has the factor
        stated = int(factor * stated)
    return stated or None


def _vision(config: Config | None) -> Vision | None:
    if not config:
        return None
    config = {"num_attention_heads": config.get("num_heads", 16), **config}
    if "depth" in config:
        config["num_hidden_layers"] = config["depth"]
    read = _Reader(config, "the vision encoder")
    hidden, heads = read("hidden"), read("heads")
    mixer = Attention(heads, heads, hidden // heads)
    block = Block(read("layers"), mixer, Dense(read("ffn", 4 * hidden), gated=config.get("gated", False)))
    return Vision((block,), hidden, read("patch_size", 14), int(config.get("spatial_merge_size", 1)) ** 2)


def nearest_divisor(value: int, wanted: int) -> int:
    """Return the divisor of `value` that is nearest to `wanted`, the smaller of two."""
    return min((d for d in range(1, value + 1) if value % d == 0), key=lambda d: (abs(d - wanted), d))
