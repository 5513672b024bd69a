"""A proof from start to verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Literal

import msgspec

from fathom.errors import BadInputError
from fathom.machine import known_machine
from fathom.referee import ceilings
from fathom.referee.bare import behaves_differently
from fathom.referee.blocks import ProcessSampler
from fathom.referee.compare.decode import Saved
from fathom.referee.compare.judge import Judge
from fathom.referee.compare.tolerance import declared
from fathom.referee.inspecting import Baseline, Inspection, inspect
from fathom.referee.launching import Fork, Launcher, Spawn
from fathom.referee.pair import Pair, Settings, Where, chosen_from, quiet
from fathom.referee.programs import prove_whole
from fathom.referee.queue import first_gpu, one_at_a_time
from fathom.referee.race import Race, comparisons, conclude, race
from fathom.referee.ranks import prove_on_ranks
from fathom.referee.sanitizing import sanitize
from fathom.referee.sides import Sides, preloads
from fathom.referee.verdict import Refusal, Verdict
from fathom.timing import MARGIN, Clock
from fathom.units import NS_PER_S

COMPARING = 0.1  # of the budget, for comparing results before timing


def prove(
    baseline: Where,
    candidate: Where,
    inputs: Where | None = None,
    margin: float = MARGIN,
    *,
    reference: Where | None = None,
    variants: Where | None = None,
    work: Where | None = None,
    precision: str | None = None,
    reduction: int | None = None,
    allow: tuple[str, ...] = (),
    budget_s: float = 120.0,
    block_s: float = 0.3,
    patience_s: float = 600.0,
    latency: Literal["removed", "included"] = "removed",
    cache: Literal["cold", "warm"] = "cold",
    fresh: Literal["spawn", "fork"] = "spawn",
    bare: bool = True,
    sanitize: bool = False,
    seed: int | None = None,
    flops: float | None = None,
    bytes: float | None = None,
    unit: str | None = None,
    progress: Callable[[str], None] = quiet,
    tell: Callable[[str], None] = quiet,
) -> Verdict:
    """Decide whether `candidate` is faster than `baseline` and still computes the same.

    Functions are given as `module:function`, `file.py:function` or as objects that can be imported.
    `inputs(seed)` returns the arguments of a call; by default it is the function of that name in the
    baseline's module. Ratios within `margin` (a share) count as the same.

    Options up to `allow` are described at `Pair`, the others at `Settings`. Raises BadInputError if the
    baseline or its inputs cannot be used.
    """
    given = locals()
    pair = chosen_from(Pair, given | {"plain": baseline, "tuned": candidate})
    return prove_pair(pair.with_inputs(), chosen_from(Settings, given))


def prove_pair(pair: Pair, settings: Settings | None = None, clock: Clock | None = None) -> Verdict:
    """Prove a pair. Raises BadInputError if its plain form or inputs cannot be used."""
    settings = settings or Settings()
    declared(pair.precision)  # others are refused before anything starts
    if settings.sanitize and (pair.commands or pair.ranks):
        raise BadInputError("compute-sanitizer checks functions of one process; leave --sanitize out.")
    with one_at_a_time(first_gpu(known_machine().get("gpus") or []), settings.tell):
        if pair.ranks:
            return prove_on_ranks(pair, settings, "cuda" if _gpus() >= pair.ranks else "cpu", clock)
        return prove_whole(pair, settings, clock) if pair.commands else _proven(pair, settings, clock)


def _gpus() -> int:
    """Return the number of GPUs that torch sees. Imports torch only if the driver reports several."""
    if len(known_machine().get("gpus") or []) < 2:
        return 0
    import torch

    return torch.cuda.device_count()


def _proven(pair: Pair, settings: Settings, clock: Clock | None) -> Verdict:
    pair = pair.addressed()
    clock = clock or settings.turn
    began, seeds = clock.now_ns(), settings.seeds()
    with (
        _launcher(settings, pair) as launcher,
        Sides(pair, settings.patience_s, launcher, settings.turn) as sides,
        Baseline(sides, seeds) as baseline,
    ):
        judge = baseline.judge(declared(pair.precision), pair.reduction)
        settings.progress("comparing results")
        inspection = inspect(sides, baseline, judge, seeds, COMPARING * settings.budget_s)
        if settings.sanitize and not _refusing(inspection.reasons, pair):
            sanitize(sides, baseline.about.device, inspection, settings.progress)
        if settings.bare and not _refusing(inspection.reasons, pair):
            settings.progress("running it without the referee")
            inspection.reasons += behaves_differently(sides, baseline, judge, next(seeds))
        verdict = _begun(pair, settings, inspection, baseline)
        if not _refusing(inspection.reasons, pair):
            _timed(sides, settings, baseline, partial(_judged, judge, baseline), seeds, verdict)
    verdict.agreement = list(judge.agreement.values())
    verdict.seconds = (clock.now_ns() - began) / NS_PER_S
    _concluded(verdict, pair, settings).agreed(judge.calls)
    return verdict


def _launcher(settings: Settings, pair: Pair) -> AbstractContextManager[Launcher]:
    if settings.launcher is not None:
        return nullcontext(settings.launcher)
    return Fork(preloads(pair)) if settings.fresh == "fork" else Spawn()


def _refusing(reasons: list[Refusal], pair: Pair) -> bool:
    return any(reason.code not in pair.allow for reason in reasons)


def _judged(judge: Judge, baseline: Baseline, seed: int, theirs: Saved, mine: Saved) -> list[Refusal]:
    if mine is theirs and judge.same(mine):
        return []
    return judge.judge(mine, theirs, baseline.reference.of(seed, theirs))


def _begun(pair: Pair, settings: Settings, inspection: Inspection, baseline: Baseline) -> Verdict:
    device = baseline.about.device
    return Verdict(
        verdict="inconclusive",
        ratio=None,
        interval=None,
        reasons=list(inspection.reasons),
        margin=settings.margin,
        baseline=str(pair.plain),
        candidate=str(pair.tuned),
        device=device,
        latency=settings.latency if device == "cuda" else None,
        reference=baseline.reference.description,
        shared=inspection.shared,
        notes=inspection.notes,
    )


def _timed(
    sides: Sides,
    settings: Settings,
    baseline: Baseline,
    judged: Callable[[int, Saved, Saved], list[Refusal]],
    seeds: Iterator[int],
    verdict: Verdict,
) -> None:
    about, machine = baseline.about, known_machine()
    work = _work(settings, baseline)
    sampler = ProcessSampler(sides, settings, about.device, about.input_bytes)
    run: Race | None = None
    for _ in range(2):  # a side that exceeds a measured ceiling is timed again
        run = race(sampler, settings, seeds, judged, settings.turn, run)
        compared = comparisons(run, settings.margin)
        notes = ceilings.placed(compared, work, machine, about.device)
        if run.reasons or not ceilings.above(compared):
            break
    assert run is not None
    settings.keep(run)
    verdict.timings = compared
    verdict.work = msgspec.to_builtins(work)
    verdict.reasons += run.reasons + ceilings.impossible(compared, work, machine)
    notes_of_blocks = {note for block in (*run.baseline, *run.candidate) for note in block.notes}
    verdict.notes += [*notes, *sorted(notes_of_blocks)]


def _work(settings: Settings, baseline: Baseline) -> ceilings.CallWork:
    work = baseline.work
    if settings.flops or settings.bytes:
        work = ceilings.CallWork(settings.flops, settings.bytes, work.written, None, "given")
    unit = settings.unit or work.unit or ceilings.unit_of(baseline.about.dtype)
    return msgspec.structs.replace(work, unit=unit)


def _concluded(verdict: Verdict, pair: Pair, settings: Settings) -> Verdict:
    chosen = next((comparison for comparison in verdict.timings if settings.decides(comparison.cache)), None)
    if chosen is not None:
        conclude(verdict, chosen)
    verdict.excuse(pair.allow)
    return verdict
