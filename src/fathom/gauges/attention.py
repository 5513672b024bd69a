"""Measure causal attention in bf16 with head size 128, forward and backward, with torch's fused backends.

FLOPs are counted as in the ledger (`fathom.analysis.work.attention`): two products forward and four backward,
over the half of all pairs that the causal mask keeps. Recomputation is not counted.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from fathom.gauges.gpu import MeasuredGpu, Workload, effort, gpu
from fathom.gauges.job import GaugeJob
from fathom.gauges.measurements import Measurement, NotHereError, best, is_fatal
from fathom.machine import Ceiling

HEADS, DEPTH = 16, 128
TOKENS = 16384  # batch times length
LENGTHS = (8192, 16384)
FULL_LENGTHS = (2048, 4096, 8192, 16384)
BACKENDS = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}
PRODUCTS = {"forward": 2, "backward": 4}
BUDGET_S = 2.0


def flops(way: str, batch: int, length: int) -> float:
    """Return the FLOPs of causal attention: 2 × DEPTH per product, head and each of length² / 2 pairs."""
    return PRODUCTS[way] * DEPTH * batch * HEADS * float(length) ** 2


def _measure(way: str, job: GaugeJob) -> Ceiling:
    here, results = gpu(), list[Measurement]()
    if here.capability < (8, 0):
        raise NotHereError("the chip has no bf16 matrix units")
    lengths = FULL_LENGTHS if job.full else LENGTHS
    refusals: list[str] = []
    for length in lengths:
        here.room()
        for backend in BACKENDS:
            try:
                results.append(
                    _result(here, way, length, backend, job, BUDGET_S / len(lengths) / len(BACKENDS))
                )
            except RuntimeError as error:  # this backend does not support this chip, or ran out of memory
                if is_fatal(error):
                    raise
                refusals.append(f"{backend}: {str(error).splitlines()[0][:80]}")
    if not results:
        raise NotHereError("no fused backend supports it (" + "; ".join(sorted(set(refusals))) + ")")
    return best(f"attention.{way}.bf16", results)


def _result(
    here: MeasuredGpu, way: str, length: int, backend: str, job: GaugeJob, seconds: float
) -> Measurement:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    batch = max(1, TOKENS // length)
    with sdpa_kernel([getattr(SDPBackend, BACKENDS[backend])]):
        work = _work(here, way, batch, length)
        at = {"length": length, "batch": batch, "heads": HEADS, "depth": DEPTH, "backend": backend}
        return here.measure(at, work, flops(way, batch, length), effort(job, seconds))


def _work(here: MeasuredGpu, way: str, batch: int, length: int) -> Workload:
    """Return a function that runs attention once, on tensors in the layout of a transformer's projections."""
    torch = here.torch
    attend = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=True)
    inputs = [_projected(here, batch, length) for _ in range(3)]
    if way == "forward":
        return lambda: attend(*inputs)
    with torch.enable_grad():
        for tensor in inputs:
            tensor.requires_grad_()
        out = attend(*inputs)
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)


def _projected(here: MeasuredGpu, batch: int, length: int) -> Any:
    """Return random [batch, heads, length, depth], laid out in memory as [batch, length, heads, depth]."""
    values = here.random(batch, length, HEADS, DEPTH, dtype=here.torch.bfloat16)
    return values.transpose(1, 2)


GAUGES = {f"attention.{way}.bf16": partial(_measure, way) for way in PRODUCTS}
