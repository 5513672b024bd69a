"""Alternating blocks of both sides, A B B A, until the ratio is settled or the budget is spent."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np

from fathom.referee.blocks import Block, Sampler, Seeds
from fathom.referee.compare.decode import Saved
from fathom.referee.outlook import MOST_ROUNDS, outlook
from fathom.referee.pair import Settings
from fathom.referee.sides import BASELINE, CANDIDATE, SideError, blaming_baseline
from fathom.referee.verdict import Comparison, Refusal, Timing
from fathom.timing import Clock, Ratio, SystemClock, compare, decide, midmean, settled
from fathom.units import NS_PER_S

LEAST_ROUNDS = 6
Judged = Callable[[int, Saved, Saved], list[Refusal]]  # seed, baseline's result, candidate's


@dataclass
class Race:
    """The blocks of both sides in order, and reasons to refuse the candidate."""

    baseline: list[Block] = field(default_factory=list)
    candidate: list[Block] = field(default_factory=list)
    reasons: list[Refusal] = field(default_factory=list)

    def ratio(self, condition: str) -> Ratio | None:
        sides = ([b.samples.get(condition, []) for b in blocks] for blocks in (self.baseline, self.candidate))
        return compare(*sides)

    @property
    def conditions(self) -> list[str]:
        return list(self.baseline[0].samples) if self.baseline else []


def race(
    sampler: Sampler,
    settings: Settings,
    seeds: Iterator[int],
    judged: Judged,
    clock: Clock | None = None,
    run: Race | None = None,
) -> Race:
    """Run rounds of one block per side; the sides take turns in going first.

    Continues `run` if it is given. Raises BadInputError if the baseline fails.
    """
    clock = clock or SystemClock()
    began, state = clock.now_ns(), run or Race()
    least, warned = len(state.baseline) + LEAST_ROUNDS, False
    while not state.reasons and len(state.baseline) < MOST_ROUNDS:
        _round(sampler, state, seeds, judged)
        rounds, spent_s = len(state.baseline), (clock.now_ns() - began) / NS_PER_S
        settings.progress(f"{rounds} pairs of at least {least}")
        if rounds < least or rounds % 2:  # complete A B B A: a drift of the machine favours neither side
            continue
        decisive = filter(settings.decides, state.conditions)
        if all(settled(state.ratio(condition), settings.margin) for condition in decisive):
            break
        warned = _report_outlook(state, settings, spent_s, warned)
        if spent_s * (rounds + 2) / rounds > settings.budget_s:
            break
    return state


def _report_outlook(run: Race, settings: Settings, spent_s: float, warned: bool) -> bool:
    """Report progress and, once, a warning if the budget is too small. Returns whether it was given."""
    for condition in filter(settings.decides, run.conditions):
        ahead = outlook(run.ratio(condition), settings.margin, spent_s, settings.budget_s, MOST_ROUNDS)
        if ahead is None:
            continue
        settings.progress(ahead.progress())
        if not ahead.soon and not warned:
            settings.tell(ahead.warning(settings.margin, settings.budget_s))
            warned = True
    return warned


def _round(sampler: Sampler, run: Race, seeds: Iterator[int], judged: Judged) -> None:
    order = (BASELINE, CANDIDATE) if len(run.baseline) % 2 == 0 else (CANDIDATE, BASELINE)
    drawn, chosen = next(seeds), random.SystemRandom().random()
    blocks: dict[str, Block] = {}
    result: Saved | None = None
    for side in order:
        try:
            with blaming_baseline() if side == BASELINE else nullcontext():
                blocks[side] = sampler.block(side, Seeds(drawn), chosen, result)
            kept = blocks[side].kept
            result = kept[1] if kept else None
        except SideError as error:
            run.reasons.append(Refusal(error.code, str(error)))
            return
    run.baseline.append(blocks[BASELINE])
    run.candidate.append(blocks[CANDIDATE])
    known = set(blocks[BASELINE].reasons)
    run.reasons += [r for r in blocks[CANDIDATE].reasons if r not in known]
    theirs, mine = blocks[BASELINE].kept, blocks[CANDIDATE].kept
    if theirs and mine:
        run.reasons += judged(theirs[0], theirs[1], mine[1])


def comparisons(run: Race, margin: float) -> list[Comparison]:
    """Compare both sides under each condition of the cache."""
    return [_comparison(run, condition, margin) for condition in run.conditions]


def _comparison(run: Race, condition: str, margin: float) -> Comparison:
    ratio = run.ratio(condition)
    interval = None if ratio is None or ratio.low is None or ratio.high is None else [ratio.low, ratio.high]
    return Comparison(
        cache=condition,
        decision=decide(ratio, margin),
        ratio=None if ratio is None else ratio.value,
        interval=interval,
        pairs=0 if ratio is None else ratio.pairs,
        settled=settled(ratio, margin),
        baseline=_timing(run.baseline, condition),
        candidate=_timing(run.candidate, condition),
    )


def _timing(blocks: list[Block], condition: str) -> Timing:
    every = [block.samples[condition] for block in blocks if block.samples.get(condition)]
    times = [midmean(samples) for samples in every]
    clocks = [block.clock_mhz for block in blocks if block.clock_mhz]
    ns = float(np.median(times)) if times else float("nan")
    clock = float(np.median(clocks)) if clocks else None
    cycles = None if clock is None else ns * clock / 1e3
    discarded = dict(sum((block.discarded for block in blocks), Counter[str]()))
    return Timing(ns, times, sum(map(len, every)), discarded, cycles, clock)
