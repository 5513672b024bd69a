"""Computation in float64."""

from __future__ import annotations

import re

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import (
    PLACE,
    in_mean_step,
    mended,
    ms_of,
    on_processor,
    rates_of,
    site,
    usual,
)
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rule
from fathom.diagnosis.signals import Double, Signals

DOUBLE = re.compile(r"dgemm|<double|double>|f64f64|_d884", re.IGNORECASE)
PRODUCT = re.compile(r"gemm|f64f64|_d884|conv", re.IGNORECASE)
NARROWER = ("matmul.tf32", "matmul.bf16")  # candidates for single precision: the gain is between them
LIKELY = 0.15  # of a matmul's time, if no ceilings are known
BYTES = (1 / 2 + 1 / 4) / 2  # of the bytes of float64, between the two as well
CHECK = "print the dtypes of the batch and of the parameters"
# Time in float32 over time in float64, for ops of torch 2.13 on one core of an EPYC with data in its cache:
# float64 halves the lanes of products and elementwise ops; other ops have no vectorised code for it.
ON_PROCESSOR = (
    (re.compile(r"gelu"), 0.04),
    (re.compile(r"conv"), 0.18),
    (re.compile(r"softmax|sigmoid|silu"), 0.32),
)
HALF = 0.5
LEAST = 0.02  # of the step: less is a loss or a metric that needs the precision


@rule("kernels-double-precision")
def double(signals: Signals) -> Candidates:
    """Find float64 kernels; matmuls gain by the ratio of matmul rates, others by that of bytes."""
    if on_processor(signals):
        yield from _on_processor(signals)
        return
    works = signals["kernels.work"]
    mine = [work for work in works if work.entry == Entry.COMPUTE and DOUBLE.search(work.family)]
    products = [work for work in mine if PRODUCT.search(work.family)]
    others = [work for work in mine if work not in products]
    if not mine:
        return
    factor = _factor(rates_of(signals))
    yield mended(
        signals,
        (products, factor),
        (others, BYTES),
        place=(),
        evidence=[
            Evidence("computation in float64", ms_of(mine), "ms per step"),
            Evidence("share of the matmuls' time with a narrower dtype", 100 * factor, "%"),
        ],
        doubt=0.15,
        check=CHECK,
        **site(mine, *PLACE),
    )


def _on_processor(signals: Signals) -> Candidates:
    """Find float64 ops on a CPU, with a known factor for each op; their share of the profiled step counts."""
    mine: list[Double] = signals["host.doubles"]
    total, recorded = ms_of(mine), signals["step.timeline_ms"]
    if not mine or total < LEAST * recorded:
        return
    gained = {row.op: (1 - _in_single(row.op)) * row.ms for row in mine}
    place = usual(((row.source, row.module), gained[row.op]) for row in mine if row.source or row.module)
    source, module = place or (None, None)
    yield Candidate(
        claims=[Claim(Entry.OPS, op, ms) for op, ms in gained.items()],
        evidence=[Evidence("computation in float64", 100 * total / recorded, "% of the profiled step")],
        gain_ms=in_mean_step(signals, sum(gained.values())),
        doubt=0.25,
        check=CHECK,
        source=source,
        module=module,
    )


def _in_single(op: str) -> float:
    """Return the ratio of an op's time in float32 to its time in float64."""
    return next((factor for names, factor in ON_PROCESSOR if names.search(op)), HALF)


def _factor(rates: dict[str, float]) -> float:
    fp64 = rates.get("matmul.fp64")
    known = [fp64 / rates[name] for name in NARROWER if rates.get(name) and fp64 is not None]
    return min(sum(known) / len(known), 1.0) if known else LIKELY
