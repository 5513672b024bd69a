"""The derivation of a plan, line by line."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fathom.planner.training.choosing import Question
from fathom.planner.training.cost import BYTES, Step, local_parameters
from fathom.planner.training.layout import Layouts
from fathom.planner.training.loading import loading_derivation
from fathom.planner.training.rates import constant, share_of
from fathom.planner.training.results import Plan
from fathom.planner.training.saving import saving_derivation
from fathom.planner.workload import Matmul, Recurrent, matmuls
from fathom.planner.workload.conventions import mixing_flops
from fathom.planner.workload.model import COLUMN, ROW
from fathom.units import GB, MS_PER_S


def derivation(question: Question, plan: Plan) -> list[str]:
    """Return every step from the model's sizes to the step time of a plan."""
    at = plan.layout.coded
    return [
        *_work(question, at),
        *_layers(question, at),
        *_aside(question, at, plan),
        *_totals(question, at, plan),
    ]


def _aside(q: Question, at: Layouts, plan: Plan) -> Iterator[str]:
    """Yield the derivation of data loading and checkpoints, if they are planned."""
    if q.job.loader:
        yield from loading_derivation(q.job.loader, q.system, q.job.batch / at.dp, at)
    if plan.checkpoint:
        yield from saving_derivation(plan.checkpoint)


def _work(q: Question, at: Layouts) -> Iterator[str]:
    model, job = q.model, q.job
    total, active = model.parameters / 1e9, model.active_parameters / 1e9
    yield f"{model.name}: {total:.4g} billion parameters, {active:.4g} active"
    yield f"layout: {at.first.words} on {job.gpus} {q.system.name}"
    tokens, count = float(job.seq * at.micro[0] / at.cp[0]), int(at.accumulation(job.batch)[0])
    yield (
        f"micro-batch: {at.micro[0]} sequences × {job.seq} tokens / cp {at.cp[0]} = {tokens:.0f} tokens; "
        f"batch {job.batch} / (dp {at.dp[0]} × {at.micro[0]}) = {count} micro-batches"
    )
    rates = q.rates()
    top, hbm = q.system.matmul(_dtype(job.precision)), q.system["hbm"]
    rate, peak = rates.matmul(job.precision) / 1e12, top.value / 1e12
    share = constant(f"matmul.{share_of(job.precision)}").provenance
    yield (
        f"matrix rate: {peak:.4g} TFLOP/s ({top.provenance}) × {rate / peak:.3f} ({share}) = "
        f"{rate:.4g} TFLOP/s ({job.precision})"
    )
    yield f"memory rate: {rates.hbm / GB:.4g} GB/s of {hbm.value / GB:.4g} ({hbm.provenance})"
    local = float(np.ravel(local_parameters(model, at))[0]) / 1e9
    yield f"parameters on one GPU before sharding: {local:.4g} billion"


def _dtype(precision: str) -> str:
    return {"mxfp8": "fp8", "nvfp4": "fp4"}.get(precision, precision)


def _layers(q: Question, at: Layouts) -> Iterator[str]:
    step = Step(q.model, q.system, q.job, at, q.rates())
    for block in q.model.blocks:
        yield f"{block.count} × layer, one micro-batch, forward and backward:"
        for matmul in matmuls(block, q.model.hidden):
            yield _product(step, at, matmul)
        layer = step.layer(block)
        if not isinstance(block.mixer, Recurrent):
            flops = 3.5 * mixing_flops(block, q.job.seq) * float(step.tokens[0]) / at.tp[0]
            yield f"  attention: {flops / 1e9:.4g} GFLOP (causal, ×3.5) = {_ms(layer.attention)} ms"
        yield f"  norms and elementwise: {_ms(layer.vector)} ms"
        for name, value in (("tensor", layer.tensor), ("context", layer.context), ("expert", layer.expert)):
            if float(np.ravel(value)[0]) > 0:
                yield f"  {name} parallel communication, before overlap: {_ms(value)} ms"


def _product(step: Step, at: Layouts, matmul: Matmul) -> str:
    seconds = float(np.ravel(sum(step.matmul(matmul)))[0])
    flops = 3 * matmul.flops * float(step.tokens[0]) / (at.tp[0] if matmul.split in (COLUMN, ROW) else 1)
    rate = flops / seconds / 1e12
    return (
        f"  {matmul.name}: {matmul.k} × {matmul.n}{_split(matmul, at)}, {flops / 1e9:.4g} GFLOP × 1 / "
        f"{rate:.4g} TFLOP/s = {MS_PER_S * seconds:.4g} ms"
    )


def _split(matmul: Matmul, at: Layouts) -> str:
    experts = f" × {matmul.count} / ep {at.ep[0]}" if matmul.count > 1 else ""
    split = f" / tp {at.tp[0]}" if at.tp[0] > 1 and matmul.split in (COLUMN, ROW) else ""
    return experts + split


def _totals(q: Question, at: Layouts, plan: Plan) -> Iterator[str]:
    entries = {k: float(v[0]) for k, v in Step(q.model, q.system, q.job, at, q.rates()).entries().items()}
    bubble, layers = (at.pp[0] - 1) / at.vpp[0], q.model.layers / at.pp[0]
    yield f"pipeline bubble: (pp − 1) / vpp = {bubble:.3g} micro-batches of {layers:.3g} layers"
    sent = BYTES * float(np.ravel(local_parameters(q.model, at))[0]) / GB
    yield f"parameters sent at once: {sent:.4g} GB of bf16"
    yield from (f"{name}: {MS_PER_S * value:.4g} ms" for name, value in entries.items() if value > 0)
    yield from (
        f"assumes {a.name}: {a.value:.4g} [{a.low:.4g}, {a.high:.4g}] {a.provenance}: {a.source}"
        for a in plan.assumptions
    )
    for name, figure in plan.figures.items():
        low, high = figure.interval
        span = f"[{low:.4g}, {high:.4g}] {figure.provenance}: {figure.source}"
        yield f"{name}: {figure.value:.4g} {figure.unit} {span}"
    span = f"[{MS_PER_S * plan.step.low:.5g}, {MS_PER_S * plan.step.high:.5g}] {plan.provenance}"
    yield f"step: {MS_PER_S * sum(entries.values()):.5g} ms {span}"


def _ms(value: object) -> str:
    return f"{MS_PER_S * float(np.ravel(np.asarray(value))[0]):.4g}"
