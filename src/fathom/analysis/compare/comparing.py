"""Compare recordings: the step's change with its verdict, and the entries that add up to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import exp, hypot, log

import numpy as np

from fathom.analysis.compare import causes, figures, noise
from fathom.analysis.compare.align import Pair, align
from fathom.analysis.compare.results import (
    ENOUGH,
    HOST_TIME,
    STEP_TIME,
    Cause,
    Change,
    ComparedRun,
    SoundingComparison,
)
from fathom.analysis.compare.run import CLEAN, MEAN, PROFILED, Run
from fathom.analysis.compare.sides import SideEntry, entries_of, ops_of
from fathom.analysis.compare.words import headline, too_few
from fathom.analysis.entries import Entry
from fathom.analysis.results import Abstained
from fathom.analysis.subjects import CPU
from fathom.errors import BadInputError
from fathom.timing import MARGIN, Ratio, decide, mad, median, midmean, require_margin
from fathom.units import NS_PER_MS

MATERIAL = 0.001  # of the step: smaller changes do not count
SAME = (  # kinds whose names depend on
    {"train", "replay", "step"},  # the source of the marks, such as a CUDA graph
    {"decode", "inference of one"},  # whether the recorded attention was recognised
    {"prefill", "inference of many"},
)
ONE_SIDE = ("baseline only", "candidate only")
LEAST = 3  # steps of a run from which its noise is computed


def compare(baseline: Sequence[Run], candidate: Sequence[Run], margin: float = MARGIN) -> SoundingComparison:
    """Compare the recordings `candidate` with `baseline`.

    `margin` is the largest difference that counts as the same, as a share. Raises BadInputError unless it is
    between 0 and 0.5, and if the steps are of different kinds.
    """
    require_margin(margin)
    _distinct(baseline)
    _distinct(candidate)
    kind = _kind([*baseline, *candidate])
    basis = _basis([*baseline, *candidate])
    sides = entries_of(baseline, basis), entries_of(candidate, basis)
    pairs = list(align(*sides))
    before, after = (sum(entry.ns for entry in side) for side in sides)
    interval = _interval(baseline, candidate, basis, before, after)
    low, high = interval or (None, None)
    ratio = Ratio(after / before, low, high, min(len(baseline), len(candidate)))
    others = max(run.others for run in (*baseline, *candidate))
    changes = _changes(pairs, sides, before, interval, others, causes.clocks_of(baseline, candidate))
    moved = {(change.entry, change.detail) for change in changes if change.moved}
    both = [(a, b) for a, b, _ in pairs if a is not None and b is not None and b.keys[0] in moved]
    result = SoundingComparison(
        verdict=decide(ratio, margin),
        headline="",
        basis=basis,
        kind=kind,
        baseline_ns=before,
        candidate_ns=after,
        change_ns=after - before,
        ratio=ratio.value,
        interval=list(interval) if interval else None,
        margin=margin,
        within_runs=min(len(baseline), len(candidate)) < 2,
        few_steps=_few(_count(run, basis) for run in (*baseline, *candidate)),
        few_windows=_few(len(run.windows_ms) for run in (*baseline, *candidate)),
        baseline=[_run(run, basis) for run in baseline],
        candidate=[_run(run, basis) for run in candidate],
        entries=changes,
        causes=[*causes.summed(changes), *_of_all(baseline, candidate)],
        figures=[
            *figures.figures(baseline, candidate, basis, before / NS_PER_MS, interval, others),
            *figures.collectives(baseline, candidate),
            *figures.counters(both, baseline, candidate),
        ],
        abstained=list(_abstained(baseline, candidate, basis, interval)),
        damaged=[run.name for run in (*baseline, *candidate) if not run.examination.integrity.ok],
        device=candidate[0].device,
    )
    if why := next((figure.why for figure in result.figures if figure.why), ""):
        result.abstained.append(Abstained("MFU, HFU", why))
    result.headline = headline(result)
    return result


def _distinct(runs: Sequence[Run]) -> None:
    """Raise BadInputError if a recording is given twice, which would look like runs without variation."""
    names = [run.name for run in runs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadInputError(f"{twice} is given twice on one side; give each recording once.")


def _kind(runs: Sequence[Run]) -> str:
    kinds = list(dict.fromkeys(run.kind for run in runs))
    if len(kinds) > 1 and not any(same.issuperset(kinds) for same in SAME):
        raise BadInputError(
            f"The recordings are of different kinds of steps ({', '.join(kinds)}). If both contain one kind, "
            "choose it with --kind."
        )
    return kinds[-1]


def _basis(runs: Sequence[Run]) -> str:
    """Return the step to compare: the clean one if all have it, and its mean if one is uneven."""
    if not all(CLEAN in run.entries for run in runs):
        return PROFILED
    return MEAN if any(run.uneven for run in runs) else CLEAN


def _of_all(baseline: Sequence[Run], candidate: Sequence[Run]) -> list[Cause]:
    """Return the differences that all pairs of recordings of both sides share."""
    every = [list(causes.of_all(a, b)) for a in baseline for b in candidate]
    return [cause for cause in every[0] if all(cause in others for others in every)]


def _run(run: Run, basis: str) -> ComparedRun:
    return ComparedRun(run.name, run.step_ns(basis) / NS_PER_MS, _count(run, basis), run.command)


def _few(counts: Iterable[int]) -> int | None:
    """Return the smallest number of steps if it is too small to know the noise well."""
    least = min(counts)
    return least if least < ENOUGH else None


def _interval(
    baseline: Sequence[Run], candidate: Sequence[Run], basis: str, before: int, after: int
) -> tuple[float, float] | None:
    """Return the interval of the ratio; None if a recording has too few steps to know its noise, or other
    programs may have changed the step by any factor.
    """
    sides = [_step_variances(runs, basis) for runs in (baseline, candidate)]
    if None in sides:
        return None
    width = noise.band([part for side in sides for part in side or []])
    if max(run.others for run in (*baseline, *candidate)) > noise.BUSY and width > log(noise.WIDEST):
        return None
    middle = log(after / before)
    return exp(middle - width), exp(middle + width)


def _step_variances(runs: Sequence[Run], basis: str) -> list[noise.Variance] | None:
    """Return the variances of a side's step, relative to it; None with too few steps."""
    each, within = [], 0.0
    for run in runs:
        count = _count(run, basis)
        if count < LEAST:
            return None
        parts = np.array(noise.blocks(_durations(run, basis), midmean if basis == CLEAN else _mean))
        each.append((parts / parts.mean()).tolist())
        within = max(within, noise.STEPS * (len(parts) / count) ** 0.5)
    lengths = np.array([run.step_ns(basis) for run in runs], float)
    return noise.variances(1.0, (lengths / lengths.mean()).tolist(), each, within, _between(runs, basis))


def _half(interval: tuple[float, float] | None) -> float | None:
    return None if interval is None else (interval[1] - interval[0]) / 2


def _mean(values: np.ndarray) -> float:
    return float(np.mean(values))


def _between(runs: Sequence[Run], basis: str) -> float:
    """Return the relative standard deviation between runs of a step.

    It is that of its parts by device and by host. If single steps scatter by more, or other programs use the
    processors, something disturbs the steps that will be different in the next run.
    """
    parts = {noise.DEVICE: 0.0, noise.HOST: 0.0}
    for run in runs:
        for row in run.entries[basis]:
            parts[noise.kind_of(row.entry)] += max(row.ns, 0)
    total = sum(parts.values())
    usual = noise.between_runs(noise.OVERALL, max(run.others for run in runs))
    expected = hypot(*(usual[kind] * part / total for kind, part in parts.items()))
    each = [_durations(run, basis) for run in runs]
    few = noise.FEW if _few(map(len, each)) else 0.0
    return max(expected, few, *(noise.DISTURBED * mad(steps) / median(steps) for steps in each))


def _count(run: Run, basis: str) -> int:
    """Return the number of steps of the basis."""
    return len(run.windows_ms) if basis == PROFILED else run.clean_steps


def _durations(run: Run, basis: str) -> list[float]:
    """Return the ms of each step of the basis, or means of several steps."""
    return run.windows_ms if basis == PROFILED else run.clean_ms


def _changes(
    pairs: Sequence[Pair],
    sides: tuple[list[SideEntry], list[SideEntry]],
    before: int,
    interval: tuple[float, float] | None,
    others: float,
    clocks: causes.Clocks | None,
) -> list[Change]:
    """Return the change of each pair, the largest first."""
    usual = [noise.usual_scatter(side) for side in sides]
    half = _half(interval)
    step = None if half is None else half * before
    tests = sum(max(a.ns if a else 0, b.ns if b else 0) > MATERIAL * before for a, b, _ in pairs)
    changes = []
    for a, b, how in pairs:
        parts = [
            part
            for place, side in enumerate((a, b))
            if side
            for part in noise.of_entry(side, usual[place], others)
        ]
        recorded = all(side.each for side in (a, b) if side)
        width = max(noise.band(parts, tests), MATERIAL * before) if recorded else step
        on_host = any(noise.kind_of(side.entry) == noise.HOST for side in (a, b) if side)
        if step is None and others > noise.BUSY and on_host:
            width = None
        changes.append(_change(a, b, how, width, MATERIAL * before, clocks))
    return sorted(changes, key=lambda change: -abs(change.change_ns))


def _change(
    a: SideEntry | None,
    b: SideEntry | None,
    how: str,
    width: float | None,
    least: float,
    clocks: causes.Clocks | None,
) -> Change:
    last = b or a
    assert last is not None
    before, after = a.ns if a else 0, b.ns if b else 0
    change = after - before
    launched = last.launched if last.launched.op or not a else a.launched
    moved = width is not None and abs(change) > width
    gone = how in ONE_SIDE and last.entry == Entry.OPS and (last.count or 0) >= 1
    if not moved and gone and abs(change) > least:
        moved, width = True, None  # no noise removes an op from every step
    return Change(
        entry=last.entry,
        detail=last.details[0],
        baseline_ns=before,
        candidate_ns=after,
        change_ns=change,
        band_ns=width,
        moved=moved,
        aligned=how,
        baseline_details=a.details if a else [],
        candidate_details=b.details if b else [],
        baseline_count=a.count if a else None,
        candidate_count=b.count if b else None,
        op=launched.op,
        ops=ops_of(a, b),
        module=launched.module,
        causes=causes.of_entry(a, b, change, clocks) if moved else [],
    )


def _abstained(
    baseline: Sequence[Run],
    candidate: Sequence[Run],
    basis: str,
    interval: tuple[float, float] | None,
) -> Iterator[Abstained]:
    """Yield the analyses that were not compared, with reasons."""
    if basis == PROFILED:
        lacking = dict.fromkeys(run.name for run in (*baseline, *candidate) if CLEAN not in run.entries)
        yield Abstained("clean step", f"missing in {', '.join(lacking)}, so profiled steps are compared")
    few = _few(_count(run, basis) for run in (*baseline, *candidate))
    if few is not None:
        yield Abstained("small changes of the step", too_few(few, "let the program run longer"))
    few = _few(len(run.windows_ms) for run in (*baseline, *candidate))
    if few is not None and basis != PROFILED:
        yield Abstained("small changes of entries", too_few(few, "record more with --steps"))
    others = max(run.others for run in (*baseline, *candidate))
    busy = f"other programs used {100 * others:.0f} % of the host's processors; record on an idle host"
    if others > noise.BUSY:
        few = min(_count(run, basis) for run in (*baseline, *candidate)) < LEAST
        yield Abstained(HOST_TIME if interval or few else STEP_TIME, busy)
    on_gpu = any(run.device != CPU for run in (*baseline, *candidate))
    if on_gpu and not all(any(run.counters for run in runs) for runs in (baseline, candidate)):
        yield Abstained("counters", "a side has no hardware counters")
    if any(run.device != CPU and len(run.clocks_mhz) < causes.FEW for run in (*baseline, *candidate)):
        yield Abstained("clocks", f"a recording has fewer than {causes.FEW} samples of the GPU's clock")
