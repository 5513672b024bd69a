"""Alternating blocks of both sides, A B B A, until the ratio is settled or the budget is spent."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from fathom.referee.blocks import Block, Sampler, Seeds
from fathom.referee.compare.decode import Saved
from fathom.referee.pair import Settings
from fathom.referee.sides import BASELINE, CANDIDATE, SideError, blaming_baseline
from fathom.referee.verdict import Comparison, Refusal, Timing, Verdict
from fathom.timing import SETTLED, SHARE, Clock, Ratio, SystemClock, compare, decide, midmean, settled
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
        settings.progress(f"pair {rounds} (at least {least})")
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


# The pairs that a proof still needs, from the scatter so far, and its verdict
MOST_ROUNDS = 60  # pairs of a proof
LONG_S = 120.0  # from here on times are shown in minutes


@dataclass(frozen=True)
class Outlook:
    """The proof needs `more` pairs in about `seconds`; `soon`: within its budget. `half`: present half
    width of the ratio's interval. `never`: it needs more pairs than any proof has; `edge`: because the ratio
    is near the margin.
    """

    pairs: int
    more: int
    seconds: float
    half: float
    soon: bool
    never: bool = False
    edge: bool = False

    def progress(self) -> str:
        """Return the progress so far and an estimate of the rest, in one line."""
        left = f"about {self.more} more, {_time(self.seconds)}" if self.soon else "does not decide soon"
        return f"{self.pairs} pairs, the ratio is known to ± {100 * self.half:.2f} % · {left}"

    def warning(self, margin: float, budget_s: float) -> str:
        """Return the warning that the proof will exceed its budget, or the limit of pairs."""
        if self.never:
            return self._undecided(margin)
        return (
            f"needs about {self.more} more pairs ({_time(self.seconds)}) to resolve {100 * margin:.3g} %, "
            f"more than its budget of {_time(budget_s)}; give --budget {ceil(self.seconds + budget_s)} "
            "or a wider --margin"
        )

    def _undecided(self, margin: float) -> str:
        """Return the warning that no budget suffices."""
        limit = f"looks undecidable within {MOST_ROUNDS} pairs, the limit for any budget"
        if self.edge:
            return f"{limit}: the ratio is at the edge of the margin of {100 * margin:.3g} %; change --margin"
        pairs = float(f"{self.pairs + self.more:.2g}")
        needs = f"about {pairs:,.0f} would resolve {100 * margin:.3g} %"
        return f"{limit}: {needs}; give a wider --margin, or prove it on an idle machine"


def at_edge(ratio: Ratio, margin: float) -> bool:
    """Return whether the distance of the ratio to the margin is what takes many pairs to measure."""
    return abs(abs(ratio.value - 1) - margin) < margin / 2


def target(ratio: Ratio, margin: float) -> float:
    """Return the half width of the interval at which a proof of this ratio ends (see `timing.settled`)."""
    off_the_edge = abs(abs(ratio.value - 1) - margin)
    narrow = max(margin / 2, SHARE * abs(1 - ratio.value))
    return max(min(off_the_edge, narrow), margin * SETTLED)


def needed(ratio: Ratio, margin: float) -> int | None:
    """Return the total number of pairs needed if the interval narrows with their root; None without one."""
    if ratio.low is None or ratio.high is None:
        return None
    half = (ratio.high - ratio.low) / 2
    return max(ratio.pairs, ceil(ratio.pairs * (half / target(ratio, margin)) ** 2))


def outlook(ratio: Ratio | None, margin: float, spent_s: float, budget_s: float, most: int) -> Outlook | None:
    """Estimate the rest of a proof; None without an interval. `most` limits the pairs of any budget."""
    every = None if ratio is None else needed(ratio, margin)
    if ratio is None or every is None or ratio.low is None or ratio.high is None:
        return None
    a_pair = spent_s / ratio.pairs
    more = max(every - ratio.pairs, 2)
    never, half = every > most, (ratio.high - ratio.low) / 2
    soon = not never and spent_s + more * a_pair <= budget_s
    return Outlook(ratio.pairs, more, more * a_pair, half, soon, never, at_edge(ratio, margin))


def _time(seconds: float) -> str:
    return f"~{seconds:.0f} s" if seconds < LONG_S else f"~{seconds / 60:.0f} min"


# The verdict
DISTURBED = 0.05  # scatter of processes: at most 3 % on an idle H200, 9 % or more beside other work


def conclude(verdict: Verdict, decisive: Comparison) -> None:
    """Set the verdict to the result of `decisive`, with a note if that is inconclusive."""
    verdict.verdict, verdict.ratio, verdict.interval = decisive.decision, decisive.ratio, decisive.interval
    note = doubt(decisive, verdict.margin)
    if note:
        verdict.notes.append(note)


def doubt(comparison: Comparison, margin: float) -> str | None:
    """Return why a result is inconclusive; None if it is not, or has no interval."""
    if comparison.decision != "inconclusive" or comparison.interval is None:
        return None
    half = (comparison.interval[1] - comparison.interval[0]) / 2
    if comparison.settled:
        return (
            f"The ratio is known to ± {100 * half:.2f} % and is at the edge of the margin of {margin:g}; "
            "change --margin to decide."
        )
    scatter = max(_scatter(comparison.baseline.blocks), _scatter(comparison.candidate.blocks))
    spread = f"by {100 * scatter:.1f} %" if scatter < 1 else f"{1 + scatter:.0f}-fold"
    text = f"Processes of the same side differ {spread} (interquartile range)"
    if scatter > DISTURBED:
        return f"{text}: something else uses the machine, or their work varies; prove it on an idle machine."
    known = f"{comparison.pairs} pairs give the ratio to ± {100 * half:.1f} %"
    return f"{text}, so {known}; {_more(comparison, half, margin)}."


def _more(comparison: Comparison, half: float, margin: float) -> str:
    """Return advice to settle the proof, assuming that the interval narrows with the root of the pairs."""
    assert comparison.ratio is not None
    enough = max(abs(abs(comparison.ratio - 1) - margin), margin * SETTLED)
    pairs = max(comparison.pairs + 2, ceil(comparison.pairs * (half / enough) ** 2))
    if pairs > MOST_ROUNDS:
        return f"a wider --margin may settle it; more time does not, for {MOST_ROUNDS} pairs are the limit"
    return f"about {pairs} would settle it; allow them with a longer --budget"


def _scatter(blocks: list[float]) -> float:
    low, high = np.percentile(blocks, [25, 75])
    return float(high / low - 1)
