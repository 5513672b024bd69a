"""Kinds of a program's steps, with their numbers and times."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis.account import LATER, Account
from fathom.analysis.columns import filled
from fathom.analysis.kinds_by_work import OTHER
from fathom.analysis.results import StepKind
from fathom.analysis.steps import (
    EPOCH_START,
    Clean,
    Stretch,
    clean_step,
    first_profiled,
    mean_ms,
    stretches,
    undisturbed,
)
from fathom.analysis.windows import HOST, WAITING, Windows, settled_of
from fathom.timing import median
from fathom.units import NS_PER_MS

_NONE = "none of them ran undisturbed"
_UNMEASURED = "none of them lies between two device events, and the host's marks are not step times there"
_UNIDENTIFIED = "the undisturbed steps of this kind are not marked; `fathom.step(kind=...)` names them"
_DISTURBED = "they ran after the profiler, which lengthened other steps"

NO_STEPS = (HOST, WAITING)


def step_kinds(account: Account) -> list[StepKind]:
    """Return the kinds of a rank's steps: the ledger's kind first, then by falling share of time.

    The counts are of complete steps in the clean phase or, if a recording has none, of windows in the
    timeline. A step that begins an epoch counts as its kind.
    """
    steps, recorded = account.steps, _recorded_kinds(account.windows)
    clean = _clean_kinds(steps)
    if any(OTHER in name and name not in clean for name in recorded):
        clean = {}  # the counts of these kinds are unknown
    kinds = [_kind(name, steps, account, clean) for name in dict.fromkeys([*clean, *recorded])]
    _share(kinds, account.windows, bool(clean))
    return sorted(kinds, key=lambda kind: (not kind.used, -(kind.share_of_time or 0.0)))


def _clean_kinds(steps: pl.DataFrame) -> dict[str, int]:
    """Return the number of complete steps in the clean phase, by kind."""
    complete = steps.filter(pl.col("parent").is_null(), phase="clean").drop_nulls("end_ns")
    kinds = filled(complete["kind"], "step").str.strip_suffix(EPOCH_START)
    return {kind: count for kind, count in kinds.value_counts(sort=True).iter_rows() if kind not in NO_STEPS}


def _recorded_kinds(windows: Windows | None) -> list[str]:
    kinds = [] if windows is None else windows.kinds
    return [kind.removesuffix(EPOCH_START) for kind in kinds if kind not in NO_STEPS]


def _kind(name: str, steps: pl.DataFrame, account: Account, clean: dict[str, int]) -> StepKind:
    used = name == account.kind.removesuffix(EPOCH_START)
    lengths = _windows_ms(account.windows, name)
    timeline_ms = median(lengths) if len(lengths) else None
    result = StepKind(name, clean.get(name, 0 if clean else len(lengths)), None, timeline_ms, None, used)
    result.windows = len(lengths)
    if clean:
        runs = stretches(steps, name)
        result.why = "" if runs else _NONE
        if runs and account.indices and not runs[0].measured and not (used and account.clean):
            result.why = _UNMEASURED
        elif runs:
            _add_clean(result, runs, steps, account)
    elif used and account.clean is not None:
        result.clean_ms, result.clean_mean_ms = account.clean.median_ms, account.clean.mean_ms
        result.all_mean_ms = result.clean_mean_ms
    elif account.clean is not None:
        result.why = _UNIDENTIFIED
    return result


def _add_clean(to: StepKind, runs: list[Stretch], steps: pl.DataFrame, account: Account) -> None:
    """Set the clean times and throughput of a kind, with a note if the profiler may have affected them."""
    profiled = first_profiled(steps)
    kept, _ = undisturbed(runs, profiled)
    clean: Clean | None = account.clean if to.used else clean_step(kept)
    if clean is None:
        to.why = _UNMEASURED
        return
    to.clean_ms, to.clean_mean_ms, to.all_mean_ms = clean.median_ms, clean.mean_ms, mean_ms(runs)
    to.samples_per_s, to.tokens_per_s = clean.samples_per_s, clean.tokens_per_s
    later = profiled is not None and all(run.end_ns > profiled for run in runs)
    if later and not to.used and any(reason.what == LATER for reason in account.abstained):
        to.note = _DISTURBED


def _windows_ms(windows: Windows | None, name: str) -> np.ndarray:
    """Return the lengths in ms of the kind's settled windows, even if the ledger covers another kind."""
    if windows is None:
        return np.zeros(0)
    same = np.array([kind == name for kind in windows.kinds], bool)
    lengths = windows.ends - windows.starts
    return lengths[same & settled_of(windows, same)[0] & (lengths > 0)] / NS_PER_MS


def _share(kinds: list[StepKind], windows: Windows | None, clean: bool) -> None:
    """Set each kind's share of the time of clean steps, else of windows; null if a time is unknown."""
    if clean:
        counted = [kind for kind in kinds if kind.n]
        known = [kind.n * kind.all_mean_ms for kind in counted if kind.all_mean_ms is not None]
        total = None if len(known) < len(counted) else sum(known)
    else:
        total = sum(_all_ms(windows, kind.name) for kind in kinds)
    for kind in kinds:
        own = kind.n * (kind.all_mean_ms or 0.0) if clean else _all_ms(windows, kind.name)
        kind.share_of_time = own / total if total else None


def _all_ms(windows: Windows | None, name: str) -> float:
    if windows is None:
        return 0.0
    same = [kind.removesuffix(EPOCH_START) == name for kind in windows.kinds]
    return float((windows.ends - windows.starts)[same].sum()) / NS_PER_MS
