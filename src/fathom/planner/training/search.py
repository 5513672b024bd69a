"""Every valid layout of a job, and the best of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import product

import numpy as np

from fathom.errors import BadInputError
from fathom.planner.hardware import Hardware
from fathom.planner.training.cost import Step
from fathom.planner.training.layout import FSDP, FULL, NONE, SELECTIVE, ZERO1, ZERO2, Job, Layouts
from fathom.planner.training.memory import peak_bytes
from fathom.planner.training.rates import Rates
from fathom.planner.workload import Attention, Experts, Latent, Model

CHUNK = 50_000  # layouts at once: keeps temporaries in the cache, and memory small
_CHUNKS_OF_LAYERS = (1, 2, 3, 4, 5, 6, 8, 10, 12)


def layouts(
    model: Model,
    job: Job,
    wanted: dict[str, int] | None = None,
    shardings: Sequence[int] = (ZERO1, ZERO2, FSDP),
) -> Layouts:
    """Return every valid layout of `job`, or those with the degrees in `wanted`, like {"tp": 8}.

    `shardings` are tried if `wanted` names none.
    """
    wanted = wanted or {}
    if wanted.get("shard"):  # only fully sharded parameters have copies that fewer ranks share
        shardings = [FSDP]
    return _expanded(degrees(model, job, wanted), job, wanted, shardings)


def degrees(
    model: Model, job: Job, wanted: dict[str, int], any_batch: bool = False
) -> list[tuple[int, int, int, int, int, int]]:
    """Return dp, tp, pp, vpp, cp and ep of every valid layout; `any_batch` leaves the batch aside."""
    kept = [_kept(values, wanted.get(name)) for name, values in _degrees(model, job).items()]
    return [
        (dp, tp, pp, vpp, cp, ep)
        for tp, pp, cp, ep in product(*kept)
        if job.gpus % (tp * pp * cp) == 0
        for dp in (job.gpus // (tp * pp * cp),)
        if (any_batch or job.batch % dp == 0) and (dp * cp * tp) % ep == 0
        for vpp in _kept(interleaving(model, pp), wanted.get("vpp"))
    ]


def _degrees(model: Model, job: Job) -> dict[str, list[int]]:
    return {
        "tp": [t for t in _divisors(job.gpus) if t <= 64 and not why_not_tp(model, t)],
        "pp": [p for p in _divisors(job.gpus) if p <= model.layers],
        "cp": [c for c in _divisors(job.gpus) if spans(job, c)],
        "ep": [e for e in _divisors(experts_of(model)) if e <= job.gpus],
    }


def spans(job: Job, cp: int) -> bool:
    """Return whether context parallelism of a degree leaves each rank enough of the sequence."""
    return cp == 1 or (job.seq % (2 * cp) == 0 and job.seq // cp >= 1024)


def experts_of(model: Model) -> int:
    """Return the experts of the layers that have most; 1 without experts."""
    return max((b.mlp.experts for b in model.blocks if isinstance(b.mlp, Experts)), default=1)


def why_not_tp(model: Model, tp: int) -> str | None:
    """Return the reason why tensor parallelism of this degree cannot split the model; None if it can."""
    for block in model.blocks:
        mixer = block.mixer
        if isinstance(mixer, Attention | Latent) and mixer.heads % tp:
            return f"{tp} does not divide the {mixer.heads} attention heads"
        if isinstance(mixer, Attention) and mixer.kv_heads % tp and tp % mixer.kv_heads:
            return f"{tp} does not divide the {mixer.kv_heads} key-value heads"
        if not isinstance(block.mlp, Experts) and block.mlp.ffn % tp:
            return f"{tp} does not divide the MLP's width of {block.mlp.ffn}"
    return None


def interleaving(model: Model, pp: int) -> list[int]:
    """Return the chunks a stage may have: as many layers in each, and more than one layer in all."""
    if pp == 1:
        return [1]
    counted = [model.layers + extra for extra in (0, 1, 2)]  # embedding and head may count as layers
    return [v for v in _CHUNKS_OF_LAYERS if v == 1 or any(n % (pp * v) == 0 for n in counted)]


def _expanded(
    rows: Sequence[tuple[int, ...]], job: Job, wanted: dict[str, int], shardings: Sequence[int]
) -> Layouts:
    """Return the rows with every micro-batch, sharding and recomputation."""
    if not rows:
        raise BadInputError(f"No layout has {wanted}.")
    expanded: list[np.ndarray] = []
    for row in rows:
        tried = range(1, 65) if "micro" not in wanted else [wanted["micro"]]
        micros = [m for m in tried if job.batch // row[0] % m == 0]
        sharded = _sharded(row[2], [wanted["sharding"]] if "sharding" in wanted else shardings)
        again = _kept([NONE, SELECTIVE, FULL], wanted.get("recompute"))
        shards = _shards(row[0], wanted.get("shard"))
        rest = np.array(list(product(micros, sharded, shards, again)), dtype=np.int64).reshape(-1, 4)
        expanded.append(np.hstack([np.broadcast_to(np.array(row), (len(rest), 6)), rest]))
    table = np.vstack(expanded)
    names = ("dp", "tp", "pp", "vpp", "cp", "ep", "micro", "sharding", "shard", "recompute")
    keep = (table[:, 8] == 0) | (table[:, 7] == FSDP)
    if not keep.any():
        raise BadInputError(f"No layout has {wanted}.")
    return Layouts(**dict(zip(names, table[keep].T, strict=True)), sp=table[keep][:, 1] > 1)


def _sharded(pp: int, shardings: Sequence[int]) -> list[int]:
    """Return the shardings that a pipeline allows: it reduces gradients once, so ZeRO 2 saves nothing."""
    return [sharding for sharding in shardings if sharding != ZERO2 or pp == 1]


def _shards(dp: int, wanted: int | None) -> list[int]:
    """Return the ranks that may share a copy of the parameters; 0 for all of them."""
    if wanted is not None:
        return [0] if wanted in (0, dp) else [wanted] if dp % wanted == 0 else []
    return [0, *(s for s in (8, 16, 32, 64) if s < dp and dp % s == 0)]


def _kept(values: list[int], wanted: int | None) -> list[int]:
    return values if wanted is None else [wanted] if wanted in values else []


def _divisors(value: int) -> list[int]:
    return [d for d in range(1, value + 1) if value % d == 0] if value <= 4096 else _large_divisors(value)


def _large_divisors(value: int) -> list[int]:
    small = [d for d in range(1, int(value**0.5) + 1) if value % d == 0]
    return sorted({*small, *(value // d for d in small)})


def pieces(at: Layouts) -> Iterator[Layouts]:
    """Yield the layouts in chunks."""
    for begin in range(0, len(at), CHUNK):
        yield Layouts(**{f.name: getattr(at, f.name)[begin : begin + CHUNK] for f in fields(Layouts)})


def rank(
    model: Model, system: Hardware, job: Job, rates: Rates, at: Layouts, memory: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the step time in seconds and the peak memory in bytes; layouts that do not fit take forever."""
    seconds = np.full(len(at), np.inf)
    peak = np.concatenate([sum(peak_bytes(model, job, piece, rates).values()) for piece in pieces(at)])
    fits = np.flatnonzero(peak <= memory)
    if len(fits):
        timed = [Step(model, system, job, piece, rates).seconds() for piece in pieces(at[fits])]
        seconds[fits] = np.concatenate(timed)
    return seconds, peak
