"""Limits of a batch as tools set them."""

from __future__ import annotations

import math

from fathom.planner.serving.deployment import BYTES, Deployment
from fathom.planner.workload import Latent


def limited(of: Deployment, prompt: int, output: int) -> Deployment:
    """Return the deployment with the limits that its engine's tool sets for these lengths, if it sets any."""
    if of.engine.rule != "trtllm-bench" or of.max_batch:
        return of
    batch, tokens = _trtllm_bench(of, prompt, output)
    return of.having(max_batch=batch, max_tokens=max(tokens, prompt))


def _trtllm_bench(of: Deployment, prompt: int, output: int) -> tuple[int, int]:
    """Return the batch and tokens that `trtllm-bench` sets.

    It takes MLA for attention with full heads, and counts packed weights.
    """
    mixer = of.model.blocks[0].mixer
    heads, width = _heads(of, mixer)
    per_token = 2 * of.model.layers * max(of.gpus, heads) * width * BYTES[of.kv]
    stored = _counted(of) * {"fp8": 1.0, "fp4": 0.5}.get(of.weights, 2.0)
    free = (of.gpus * of.memory - stored) * 0.95
    requests = max(1.0, free / (per_token * (prompt + output)))
    return _finetuned(requests, prompt, output)


def _heads(of: Deployment, mixer: object) -> tuple[int, int]:
    if isinstance(mixer, Latent):
        return mixer.heads, of.model.hidden // mixer.heads
    return mixer.kv_heads, mixer.head_dim  # type: ignore[attr-defined]


def _counted(of: Deployment) -> float:
    """Return the number of stored elements: two fp4 weights are one, with their scales."""
    packed = sum(n * c * e.experts for c, e, n, p in of.parts.experts if p in ("fp4", "int4")) + sum(
        n * of.tp for p, n in of.parts.dense.items() if p in ("fp4", "int4")
    )
    return of.model.parameters - packed * (1 - 0.5625)


def _finetuned(requests: float, prompt: int, output: int) -> tuple[int, int]:
    batch = min(requests, 4096.0)
    tokens = min(batch * (1 + prompt / output), 32768.0)
    step = 32 if batch < 256 else 128 if batch < 1024 else 256
    wide = 256 if tokens < 4096 else 512 if tokens < 8192 else 1024
    return max(64, step * math.ceil(batch / step)), max(2048, wide * math.ceil(tokens / wide))
