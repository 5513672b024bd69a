"""Memory of a training step on the fullest GPU, by component, for one layout or a million at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from fathom.planner.training.cost import fullest_stage, local_parameters
from fathom.planner.training.layout import DDP, FSDP, FULL, SELECTIVE, ZERO1, ZERO2, Job, Layouts
from fathom.planner.training.rates import Rates
from fathom.planner.workload import Block, Experts, Model, Recurrent
from fathom.units import GIB

_WEIGHT, _STATES = 2.0, 12.0  # bytes: a bf16 weight; its fp32 copy and Adam's two moments


def peak_bytes(model: Model, job: Job, at: Layouts, rates: Rates) -> dict[str, np.ndarray]:
    """Return the bytes on the fullest GPU by component; they add up to its peak."""
    size = local_parameters(model, at)
    ranks = np.where(at.shard > 0, at.shard, at.dp) * at.cp
    gathers = (at.sharding >= ZERO2) & (at.pp > 1)
    resident = np.where((at.sharding == FSDP) & ~gathers, 1 / ranks, 1.0)
    graded = np.where((at.sharding >= ZERO2) & ~gathers, 1 / ranks, 1.0)
    optimizer = np.where(at.sharding >= ZERO1, 1 / ranks, 1.0)
    parts = {
        "parameters": _WEIGHT * size * np.where(resident < 1, 0.0, 1.0),  # the fp32 copy is the shard
        "gradients": rates.grad_bytes * size * graded,
        "optimizer": _STATES * size * np.where(at.sharding == DDP, 1.0, optimizer),
        "gathered layers": np.where(
            resident < 1, 2 * _WEIGHT * size / np.maximum(1, model.layers / at.pp), 0.0
        ),
        "activations": _activations(model, job, at, rates),
        "logits": job.seq * at.micro / at.cp * model.vocab / at.tp * rates.logit_bytes,
    }
    parts["fragmentation"] = (rates.fragmentation - 1) * sum(parts.values())
    parts["context"] = np.full(len(at), rates.context_gib * GIB)
    return {name: np.broadcast_to(value, len(at)) for name, value in parts.items()}


def _activations(model: Model, job: Job, at: Layouts, rates: Rates) -> Any:
    """Return the bytes of activations that wait for the backward pass, on the first stage."""
    tokens = job.seq * at.micro / at.cp
    count = at.accumulation(job.batch)
    # 1F1B keeps a micro-batch for each stage behind; interleaving adds a part of a stage.
    waiting = np.minimum(count, at.pp) * np.where(at.vpp > 1, 1 + (at.pp - 1) / (at.pp * at.vpp), 1.0)
    kept: Any = 0.0
    working: Any = 0.0
    for block in model.blocks:
        every = _layer_bytes(model, block, at)
        entry = 2.0 * model.hidden / np.where(at.sp, at.tp, 1)
        partly = entry + rates.kept * every
        saved = np.where(at.recompute == FULL, entry, np.where(at.recompute == SELECTIVE, partly, every))
        kept = kept + saved * block.count * fullest_stage(model.layers, at)
        working = np.maximum(working, np.where(at.recompute == FULL, every, 0.0))
    return tokens * (kept * waiting + working * rates.working)


def _layer_bytes(model: Model, block: Block, at: Layouts) -> Any:
    """Return the bytes per token that one layer saves without recomputation, with fused attention."""
    mixer, mlp, hidden = block.mixer, block.mlp, model.hidden
    split = np.where(at.sp, at.tp, 1)
    if isinstance(mixer, Recurrent):
        mixing = 5.0 * mixer.heads * mixer.head_dim
    else:
        mixing = mixer.heads * (mixer.qk_dim + mixer.value_dim) + 2.0 * mixer.kv_heads * mixer.qk_dim
    if isinstance(mlp, Experts):
        inner = (mlp.active * mlp.ffn + mlp.shared_ffn) * (3 if mlp.gated else 2) + 2.0 * mlp.active * hidden
    else:
        inner = mlp.ffn * (3.0 if mlp.gated else 2.0)
    return 2.0 * (4.0 * hidden / split + (mixing + inner) / at.tp)
