"""A deployment: a model on GPUs under a serving engine, with its precisions, layout and limits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import msgspec

from fathom.data import load
from fathom.errors import BadInputError, nearest
from fathom.planner.hardware import Hardware
from fathom.planner.workload import Attention, Experts, Latent, Model, Recurrent, matmuls, nearest_divisor
from fathom.units import GIB

BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5625, "int4": 0.5625}


class Engine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A serving engine: how it schedules, and how much memory it takes.

    `reserves`: it admits a request only if the KV cache holds the whole of it, so that none is preempted.
    `graphs` are the batch sizes of CUDA graphs, to which a decode batch is padded; empty if it is not.
    `rule` names the tool that sets the limits of a batch.
    """

    name: str
    reserves: bool
    chunked: bool
    memory_share: float
    max_batch: int
    max_tokens: int
    block: int = 16
    graphs: tuple[int, ...] = ()
    compiled: bool = False  # a compiled runtime launches kernels of prefill as fast as a CUDA graph
    overlaps: bool = False  # it schedules the next iteration while the device works on this one
    windowed: bool = True  # the cache of layers with a window is limited to it
    like: str = ""
    rule: str = ""
    source: str = ""


@cache
def engines() -> dict[str, Engine]:
    """Return the known engines by name."""
    return {row.name: row for row in msgspec.convert(load(__package__, "engines"), list[Engine])}


def engine(name: str) -> Engine:
    """Return the engine called `name`; raises BadInputError with the nearest."""
    if name.lower() in engines():
        return engines()[name.lower()]
    raise BadInputError(f"{name!r} is not a known serving engine; {nearest(name.lower(), engines())}.")


@dataclass(frozen=True)
class Deployment:
    """One replica: `tp` × `dp` GPUs. `dp` is attention's data parallelism, `ep` spreads experts over GPUs.

    `max_batch` and `max_tokens` limit one iteration of one attention rank; None: as the engine sets them.
    `drafted` tokens are proposed an iteration, each accepted with probability `acceptance`.
    """

    model: Model
    hardware: Hardware
    engine: Engine
    tp: int = 1
    dp: int = 1
    ep: int = 1
    weights: str = "bf16"
    kv: str = "bf16"
    max_batch: int | None = None
    max_tokens: int | None = None
    memory_share: float | None = None
    drafted: int = 0
    acceptance: float = 0.0

    def __post_init__(self) -> None:
        _check(self)

    @property
    def gpus(self) -> int:
        """Return the GPUs of one replica."""
        return self.tp * self.dp

    @property
    def gain(self) -> float:
        """Return the tokens that a sequence gains on average per iteration."""
        if not self.drafted:
            return 1.0
        a = min(self.acceptance, 1 - 1e-9)
        return (1 - a ** (self.drafted + 1)) / (1 - a)

    @cached_property
    def parts(self) -> Parts:
        """Return the weights of one GPU by how they are used."""
        return _parts(self)

    @property
    def memory(self) -> float:
        """Return the bytes of one GPU; makers print GiB as GB, and drivers report them so."""
        return self.hardware["memory"].value * 1.0685

    @cached_property
    def kv_bytes(self) -> float:
        """Return the bytes that one token keeps on one GPU, without the limit of windows."""
        return sum(
            block.count * _kv_share(block.mixer, self.tp) * block.mixer.kv_elements * BYTES[self.kv]
            for block in self.model.blocks
        )

    def cache_bytes(self, tokens: int) -> float:
        """Return the bytes on one GPU that a sequence of `tokens` keeps; windows and states limit them."""
        if self._grows:
            return tokens * self.kv_bytes
        total = 0.0
        for block in self.model.blocks:
            mixer = block.mixer
            if isinstance(mixer, Recurrent):
                total += block.count * mixer.state_elements * 4.0 / self.tp
                continue
            kept = min(tokens, (mixer.window if self.engine.windowed else None) or tokens)
            total += block.count * _kv_share(mixer, self.tp) * mixer.kv_elements * kept * BYTES[self.kv]
        return total

    @cached_property
    def _grows(self) -> bool:
        """Return whether every layer keeps every token."""
        return not any(isinstance(b.mixer, Recurrent) or b.mixer.window for b in self.model.blocks)

    @cached_property
    def cache_space(self) -> float:
        """Return the bytes of one GPU that are free for the KV cache; raises BadInputError if none are."""
        share = self.memory_share or self.engine.memory_share
        working = 0.02 * self.memory + 2.0 * self.token_limit * self.model.hidden * 8
        usable = share * self.memory - self.parts.stored - working
        if usable <= 0:
            raise BadInputError(_over(self, -usable))
        return usable

    @property
    def token_limit(self) -> int:
        """Return the most tokens of one iteration."""
        return self.max_tokens or self.engine.max_tokens

    @property
    def batch_limit(self) -> int:
        """Return the most sequences of one iteration on one attention rank."""
        return self.max_batch or self.engine.max_batch

    @property
    def blocks(self) -> int:
        """Return the engine's number of KV blocks, as it prints at its start."""
        per_block = self.kv_bytes * self.engine.block
        return int(self.cache_space // per_block) if per_block else 10**9

    def having(self, **changes: Any) -> Deployment:
        """Return the deployment with fields changed."""
        return replace(self, **changes)


@dataclass(frozen=True)
class Parts:
    """Weights of one GPU in elements, by precision, and its experts. `stored` is their size in bytes."""

    dense: dict[str, float]
    experts: tuple[tuple[int, Experts, float, str], ...]  # layers, sizes, elements of one expert, precision
    head: float
    stored: float


def _parts(of: Deployment) -> Parts:
    dense: dict[str, float] = {}
    experts: list[tuple[int, Experts, float, str]] = []
    for block in of.model.blocks:
        for m in matmuls(block, of.model.hidden):
            if m.count > 1:
                continue
            precision = _precision(of, m.name)
            dense[precision] = dense.get(precision, 0.0) + block.count * m.parameters / of.tp
        if isinstance(block.mlp, Experts):
            elements = of.model.hidden * block.mlp.ffn * (3 if block.mlp.gated else 2)
            experts.append((block.count, block.mlp, float(elements), expert_precision(of)))
    head = of.model.embedding / of.tp
    stored = sum(n * BYTES[p] for p, n in dense.items()) + 2.0 * head * (1 if of.model.tied else 2)
    stored += sum(c * e.experts * n * BYTES[p] / of.gpus for c, e, n, p in experts)
    return Parts(dense, tuple(experts), head, stored)


def expert_precision(of: Deployment) -> str:
    """Return the precision in which experts are stored; gpt-oss publishes them in mxfp4 alone."""
    return "fp4" if of.model.name.startswith("gpt-oss") else of.weights


def _precision(of: Deployment, name: str) -> str:
    """Return the precision of a matrix; published fp4 checkpoints keep some attention in bf16."""
    attends = any(part in name for part in ("qkv", "attention", "q up", "q down", "kv"))
    kept = of.model.name.startswith(("gpt-oss", "llama-4"))
    latent = any(isinstance(b.mixer, Latent) for b in of.model.blocks)
    if name == "router" or (attends and (kept or (latent and of.weights in ("fp4", "int4")))):
        return "bf16"
    return of.weights


def _kv_share(mixer: Attention | Latent | Recurrent, tp: int) -> float:
    """Return the share of a token's keys and values that one GPU keeps; MLA's are on every GPU."""
    if isinstance(mixer, Attention):
        return max(1 / tp, 1 / mixer.kv_heads)
    return 1.0


def _check(of: Deployment) -> None:
    for name in ("tp", "dp", "ep"):
        if getattr(of, name) < 1:
            raise BadInputError(f"{name} is {getattr(of, name)}; it must be at least 1.")
    for name in ("weights", "kv"):
        if getattr(of, name) not in BYTES:
            raise BadInputError(
                f"{getattr(of, name)!r} is not a precision; choose one of {', '.join(BYTES)}."
            )
    for block in of.model.blocks:
        heads = block.mixer.heads
        if heads % of.tp:
            near = nearest_divisor(heads, of.tp)
            raise BadInputError(
                f"{of.model.name} has {heads} heads, which tp {of.tp} does not divide; the nearest "
                f"is tp {near}."
            )
        if isinstance(block.mlp, Experts) and block.mlp.experts % of.ep:
            near = nearest_divisor(math.gcd(block.mlp.experts, of.gpus), of.ep)
            raise BadInputError(
                f"{of.model.name} has {block.mlp.experts} experts, which ep {of.ep} does not divide; "
                f"the nearest is ep {near}."
            )
    if of.gpus % of.ep:
        raise BadInputError(
            f"ep {of.ep} does not divide the {of.gpus} GPUs of a replica; "
            f"the nearest is ep {nearest_divisor(of.gpus, of.ep)}."
        )
    if not 0 <= of.acceptance <= 1:
        raise BadInputError(
            f"The acceptance rate {of.acceptance:g} is not a probability; give one from 0 to 1."
        )


def _bytes(count: int) -> str:
    """Return a number of bytes in words."""
    return f"{count:,} byte{'' if count == 1 else 's'}"


def _over(of: Deployment, missing: float) -> str:
    weights = of.parts.stored / GIB
    needed = next(
        (
            tp
            for tp in (2, 4, 8, 16, 32, 64)
            if tp > of.tp and of.parts.stored * of.tp / tp < 0.85 * of.memory
        ),
        None,
    )
    hint = f"tp {needed} fits" if needed else "no tp up to 64 fits; take a narrower precision"
    size = f"{missing / GIB:.2f} GiB" if missing > 1e7 else _bytes(math.ceil(missing))
    return (
        f"{of.model.name} needs {weights:.1f} GiB of weights on each {of.hardware.name}, "
        f"which is over its memory by {size}; {hint}."
    )
