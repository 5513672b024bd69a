"""Work that the result does not need: casts, gradients, recomputation, and offloading."""

from __future__ import annotations

import re

from fathom.analysis.causes import ZEROING
from fathom.analysis.entries import Entry
from fathom.analysis.work import ONLY_FORWARD
from fathom.diagnosis.rules.candidates import (
    LAUNCHING,
    PLACE,
    claims_of,
    count_of,
    mended,
    ms_of,
    number_of_kernels,
    on_processor,
    site,
)
from fathom.diagnosis.rules.input.copies import bytes_of, copies_of
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rule
from fathom.diagnosis.signals import Signals, Work
from fathom.units import MB

FREE = 0.6  # of the device's memory in use: above it, a program may only fit because it saves memory
LARGE = 32e6  # offloaded bytes per step: fewer are results, not activations
BACK = 0.5  # of the offloaded bytes are copied back
ADDING = "torch::autograd::AccumulateGrad > aten::add_"
PASSES = 3.0  # per pass of zeroing: both gradients are read, and their sum is written


@rule("kernels-needless-casts")
def casts(signals: Signals) -> Candidates:
    """Find casts to a wider dtype and back, which only cause memory traffic."""
    mine = signals["kernels.round_trips"]
    if mine:
        yield mended(
            signals,
            (mine, 0.0),
            evidence=[
                Evidence("casts to a wider dtype and back", ms_of(mine), "ms per step"),
                Evidence("number of casts", count_of(mine), "per step"),
            ],
            doubt=0.15,
            check="remove the casts, and compare the loss and the step",
        )


@rule("kernels-needless-backward")
def unused_gradients(signals: Signals) -> Candidates:
    """Find gradients of parameters that belong to no optimizer."""
    gradients = signals["kernels.unused_gradients"]
    if not gradients.unused or not gradients.works:
        return
    yield mended(
        signals,
        (gradients.works, 0.0),
        place=("family",),
        evidence=[
            Evidence(
                "gradients of parameters that belong to no optimizer", float(gradients.unused), "per step"
            ),
            Evidence("parameters of the optimizers", float(gradients.used), "per step"),
            Evidence(
                "backward work after the last gradient that is used", ms_of(gradients.works), "ms per step"
            ),
        ],
        doubt=0.25,
        confidence=0.75,
        check="set requires_grad_(False) on untrained parameters, and compare the loss and the step",
    )


@rule("kernels-gradient-memset")
def gradient_zeros(signals: Signals) -> Candidates:
    """Find gradients that are set to zero; if they were dropped, the backward pass would only write them."""
    works = signals["kernels.work"]
    zeroing = [work for work in works if ZEROING in work.path]
    if not zeroing:
        return
    adding = [work for work in works if work.path.endswith(ADDING)]
    to_zeros = min(PASSES * ms_of(zeroing), ms_of(adding))  # in the first micro-batch
    yield mended(
        signals,
        (zeroing, 0.0),
        (adding, 1 - to_zeros / (ms_of(adding) or 1.0)),
        place=PLACE,
        evidence=[
            Evidence("time to zero gradients", ms_of(zeroing), "ms per step"),
            number_of_kernels(zeroing),
            Evidence("time to add gradients to the zeros", to_zeros, "ms per step"),
        ],
        check="use optimizer.zero_grad(set_to_none=True), and time the step",
    )


@rule("kernels-needless-recomputation")
def recomputation(signals: Signals) -> Candidates:
    """Find matmuls that are recomputed, according to the ledger, although memory is free."""
    if on_processor(signals):
        yield from _recomputed_by_host(signals)
        return
    again = [row for row in signals["step.ledger"] if row.recomputed_flops > 0 and row.product_flops > 0]
    used, total = signals["device.used_bytes"], signals["device.memory_bytes"]
    if not again or used > FREE * total:
        return
    shares = {row.detail: min(row.recomputed_flops / row.product_flops, 1.0) for row in again}
    works = signals.get("kernels.work").value or []
    others = [work for work in works if work.family not in shares and _forward_in_backward(work)]
    repeated = [Claim(row.entry, row.detail, shares[row.detail] * row.ms) for row in again]
    yield Candidate(
        claims=[*repeated, *claims_of(others)],
        evidence=[
            Evidence("time recomputing the forward pass", ms_of(repeated) + ms_of(others), "ms per step"),
            Evidence("peak use of the device's memory", 100 * used / total, "%"),
        ],
        changes=("recomputed=0",),
        spill=LAUNCHING,
        doubt=0.25,
        check="switch checkpointing off, and compare peak memory and the step",
    )


def _recomputed_by_host(signals: Signals) -> Candidates:
    works, used = signals["host.recomputed"], signals["host.memory_share"]
    if not works or used > FREE:
        return
    yield mended(
        signals,
        (works, 0.0),
        evidence=[
            Evidence("time recomputing the forward pass", ms_of(works), "ms per step"),
            Evidence("peak resident memory, of the host's", 100 * used, "%"),
        ],
        doubt=0.25,
        check="switch checkpointing off, and compare peak memory and the step",
    )


def _forward_in_backward(work: Work) -> bool:
    """Return whether a backward function launched an op that only forward passes call."""
    return work.entry == Entry.COMPUTE and work.backward and re.search(ONLY_FORWARD, work.path) is not None


@rule("kernels-memory-headroom")
def offloading(signals: Signals) -> Candidates:
    """Find copies to the host that are copied back in every step, although the device has room."""
    out, back = copies_of(signals, "DtoH"), copies_of(signals, "HtoD")
    left = bytes_of(out)
    if left < LARGE or bytes_of(back) < BACK * left:
        return
    used, total = signals["device.used_bytes"], signals["device.memory_bytes"]
    if used > FREE * total:
        return
    yield Candidate(
        claims=claims_of([*out, *back]),
        evidence=[
            Evidence("copied to host memory", left / MB, "MB per step"),
            Evidence("peak use of the device's memory", 100 * used / total, "%"),
        ],
        changes=("copy:DtoH=0", "copy:HtoD=0"),
        doubt=0.3,
        confidence=0.8,
        check="switch offloading off, and compare peak memory and the step",
        **site(out, "source"),
    )
