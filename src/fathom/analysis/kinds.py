"""The kinds of a program's steps: how many there were of each, and what each takes."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis.account import LATER, Account
from fathom.analysis.apart import OTHER
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
from fathom.analysis.windows import HOST, Windows, settled_of
from fathom.units import NS_PER_MS

_NONE = "none of them ran undisturbed"
_UNMEASURED = "no two device events stood around one of them, and marks of the host are no step times there"
_UNTOLD = "nothing tells which undisturbed steps they are; `fathom.step(kind=...)` names them"
_DISTURBED = "they ran after the profiler had, which left other steps longer"


def step_kinds(account: Account) -> list[StepKind]:
    """One row a kind of step of a rank; the ledger's first, then by time.

    Whole steps of the clean phase count; of a recording that has none, the windows of the timeline. A step
    that began an epoch is one of its kind.
    """
    steps, recorded = account.steps, _recorded_kinds(account.windows)
    clean = _clean_kinds(steps)
    if any(OTHER in name and name not in clean for name in recorded):
        clean = {}  # nothing tells how many there are of each
    found = [_kind(name, steps, account, clean) for name in dict.fromkeys([*clean, *recorded])]
    _share(found, account.windows, bool(clean))
    return sorted(found, key=lambda one: (not one.used, -(one.share_of_time or 0.0)))


def _clean_kinds(steps: pl.DataFrame) -> dict[str, int]:
    """Kind to the number of its whole steps in the clean phase."""
    whole = steps.filter(pl.col("parent").is_null(), phase="clean").drop_nulls("end_ns")
    kinds = whole["kind"].fill_null("step").str.strip_suffix(EPOCH_START)
    return {kind: count for kind, count in kinds.value_counts(sort=True).iter_rows() if kind != HOST}


def _recorded_kinds(windows: Windows | None) -> list[str]:
    kinds = [] if windows is None else windows.kinds
    return [kind.removesuffix(EPOCH_START) for kind in kinds if kind != HOST]


def _kind(name: str, steps: pl.DataFrame, account: Account, clean: dict[str, int]) -> StepKind:
    used = name == account.kind.removesuffix(EPOCH_START)
    lengths = _windows_ms(account.windows, name)
    timeline_ms = float(lengths.mean()) if len(lengths) else None
    found = StepKind(name, clean.get(name, 0 if clean else len(lengths)), None, timeline_ms, None, used)
    found.windows = len(lengths)
    if clean:
        runs = stretches(steps, name)
        found.why = "" if runs else _NONE
        if runs and account.indices and not runs[0].measured and not (used and account.clean):
            found.why = _UNMEASURED
        elif runs:
            _add_clean(found, runs, steps, account)
    elif used and account.clean is not None:
        found.clean_ms, found.clean_mean_ms = account.clean.median_ms, account.clean.mean_ms
        found.all_mean_ms = found.clean_mean_ms
    elif account.clean is not None:
        found.why = _UNTOLD
    return found


def _add_clean(to: StepKind, runs: list[Stretch], steps: pl.DataFrame, account: Account) -> None:
    """What it takes: undisturbed where there are such steps, else what the profiler may have left in them."""
    profiled = first_profiled(steps)
    kept, _ = undisturbed(runs, profiled)
    clean: Clean | None = account.clean if to.used else clean_step(kept)
    if clean is None:
        to.why = _UNMEASURED
        return
    to.clean_ms, to.clean_mean_ms, to.all_mean_ms = clean.median_ms, clean.mean_ms, mean_ms(runs)
    to.samples_per_s, to.tokens_per_s = clean.samples_per_s, clean.tokens_per_s
    later = profiled is not None and all(run.end_ns > profiled for run in runs)
    if later and not to.used and any(one.what == LATER for one in account.abstained):
        to.note = _DISTURBED


def _windows_ms(windows: Windows | None, name: str) -> np.ndarray:
    """Lengths of the kind's windows that are used, or would be."""
    if windows is None:
        return np.zeros(0)
    same = np.array([kind == name for kind in windows.kinds], bool)
    lengths = windows.ends - windows.starts
    return lengths[same & settled_of(windows, same)[0] & (lengths > 0)] / NS_PER_MS


def _share(found: list[StepKind], windows: Windows | None, clean: bool) -> None:
    """Set the share of time: of undisturbed steps, else of all windows; unknown where one kind's time is."""
    if clean:
        known = [one.n * one.all_mean_ms if one.all_mean_ms is not None else None for one in found if one.n]
        whole = None if None in known else sum(ms for ms in known if ms is not None)
    else:
        whole = sum(_all_ms(windows, one.name) for one in found)
    for one in found:
        mine = one.n * (one.all_mean_ms or 0.0) if clean else _all_ms(windows, one.name)
        one.share_of_time = mine / whole if whole else None


def _all_ms(windows: Windows | None, name: str) -> float:
    if windows is None:
        return 0.0
    same = [kind.removesuffix(EPOCH_START) == name for kind in windows.kinds]
    return float((windows.ends - windows.starts)[same].sum()) / NS_PER_MS
