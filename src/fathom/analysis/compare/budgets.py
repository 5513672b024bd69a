"""Budgets: limits for the candidate of a comparison, absolute or relative to the baseline.

    [budgets]
    step = "+2 %"                   # at most 2 % above the baseline
    mfu = ">= 40 %"
    peak_memory = "<= 70 GiB"

    [budgets.ledger]
    "idle: input" = "<= 1 % of step"

A budget is exceeded only if the figure is beyond its limit by more than noise. If the noise is larger than
the limit itself, and the figure not clear of it, the budget cannot be checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from math import hypot
from typing import Any, Literal

import msgspec

from fathom.analysis.compare.figures import OF_DATASHEET
from fathom.analysis.compare.results import ENOUGH, HOST_TIME, STEP_TIME, Change, Figure, SoundingComparison
from fathom.analysis.compare.words import incomparable, name_of
from fathom.analysis.entries import Entry
from fathom.errors import BadInputError
from fathom.units import NS_PER_MS

Status = Literal["kept", "exceeded", "unknown"]
LEDGER = "ledger"
STEP = "step"
OF_STEP = "% of step"
# The figure of a comparison behind each name.
FIGURES = {
    "mfu": "MFU",
    "hfu": "HFU",
    "samples_per_s": "samples/s",
    "tokens_per_s": "tokens/s",
    "input_wait": "input wait",
    "peak_memory": "peak allocated",
    "reserved_memory": "peak reserved",
    "device_memory": "peak on the device",
    "host_memory": "peak of the host",
    "energy": "energy",
    "power": "power",
}
# How a figure becomes known, by name.
RECORDED = {
    "mfu": "it needs ops with known FLOPs and the peak of the GPU; `fathom report` says what is missing",
    "hfu": "it needs ops with known FLOPs and the peak of the GPU; `fathom report` says what is missing",
    "samples_per_s": "mark the samples of a step with fathom.step(samples=N)",
    "tokens_per_s": "mark the tokens of a step with fathom.step(tokens=N)",
    "input_wait": 'no data loader was seen; limit "idle: input" under [budgets.ledger] instead',
    "host_memory": "the recording has no samples of the host's memory",
    "energy": "the recording has no energy counter or power sensor",
    "power": "the recording has no power sensor",
}
PUBLISHED = "a share of the datasheet's peak, because no measured ceiling applies to all recordings"
BOUND = "inconclusive: it is a lower bound, because the FLOPs of some products are unknown"
OF_GPU = "it is known for recordings of a GPU"
# Units by dimension, with their size in the unit of the figure.
_UNITS: dict[str, dict[str, float]] = {
    "ms": {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3},
    "B": {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
    "J": {"mJ": 1e-3, "J": 1.0, "kJ": 1e3},
    "W": {"W": 1.0, "kW": 1e3},
    "": {"": 1.0, "%": 0.01},
    "/s": {"": 1.0, "/s": 1.0, "k/s": 1e3},
}
_BUDGET = re.compile(r"\s*(<=|>=|\+|-)\s*(\d+(?:\.\d*)?|\.\d+)\s*(% of step|%|[A-Za-zµ/]*)\s*")
_FORMS = 'write it like "+2 %", "+0.5 ms", "<= 12 ms" or ">= 40 %"'


class Budget(msgspec.Struct, frozen=True):
    """A limit: `<=` and `>=` are absolute; `+` and `-` allow that much more or less than the baseline."""

    name: str
    text: str
    sign: str
    number: float
    unit: str

    @property
    def relative(self) -> bool:
        """Whether it refers to the baseline."""
        return self.sign in "+-"

    @property
    def upper(self) -> bool:
        """Whether larger figures exceed it."""
        return self.sign in ("<=", "+")


class Checked(msgspec.Struct):
    """A budget and the candidate's figure. `excess` is the part of the figure beyond the limit, 0 if kept."""

    name: str
    budget: str
    status: Status
    unit: str = ""
    baseline: float | None = None
    candidate: float | None = None
    limit: float | None = None
    band: float | None = None
    why: str = ""  # the reason if it is unknown, or kept only because of noise; a note on the figure


class GateResult(msgspec.Struct):
    """All budgets, and the comparison behind them. `baseline` is false if only the candidate was given."""

    passed: bool
    budgets: list[Checked]
    comparison: SoundingComparison
    baseline: bool = True

    @property
    def exceeded(self) -> bool:
        """Whether a budget is exceeded; if not, and it did not pass, a figure is unknown."""
        return any(row.status == "exceeded" for row in self.budgets)


class _Measured(msgspec.Struct, frozen=True):
    unit: str
    baseline: float
    candidate: float
    band: float | None
    why: str = ""  # the reason why it cannot be compared with the baseline
    note: str = ""
    at_least: bool = False  # the candidate's figure is a lower bound


def budgets_in(settings: Mapping[str, Any], where: str) -> list[Budget]:
    """Return the budgets of a settings file named `where`. Raises BadInputError if they cannot be read."""
    section = settings.get("budgets")
    if not isinstance(section, dict) or not section:
        raise BadInputError(f'{where} has no budgets; add a section [budgets] with lines like step = "+2 %".')
    return list(_budgets(section, where))


def _budgets(section: Mapping[str, Any], where: str) -> Iterator[Budget]:
    for name, value in section.items():
        if name == LEDGER and isinstance(value, dict):
            yield from (_budget(f"{LEDGER}.{entry}", text, where) for entry, text in value.items())
        elif name == STEP or name in FIGURES:
            yield _budget(name, value, where)
        else:
            names = ", ".join((STEP, *FIGURES))
            raise BadInputError(
                f"{name!r} under [budgets] in {where} is unknown; use {names}, or [budgets.ledger]."
            )


def _budget(name: str, text: Any, where: str) -> Budget:
    parsed = _BUDGET.fullmatch(text) if isinstance(text, str) else None
    if parsed is None:
        raise BadInputError(f"The budget {name} = {text!r} in {where} is not a limit; {_FORMS}.")
    return Budget(name, text.strip(), parsed[1], float(parsed[2]), parsed[3])


def check(budgets: list[Budget], comparison: SoundingComparison, baseline: bool = True) -> GateResult:
    """Check the candidate against budgets.

    Without a `baseline`, the comparison is of the candidate with itself. Raises BadInputError for units that
    do not fit, and for a relative budget without a baseline.
    """
    checked = [_checked(budget, comparison, baseline) for budget in budgets]
    return GateResult(all(row.status == "kept" for row in checked), checked, comparison, baseline)


def _checked(budget: Budget, comparison: SoundingComparison, baseline: bool) -> Checked:
    if budget.relative and not baseline:
        raise BadInputError(f"The budget {budget.name} = {budget.text!r} is relative; give a --baseline.")
    measured = _measured(budget, comparison)
    result = Checked(budget.name, budget.text, "unknown")
    if measured is None:
        result.why = _unknown(budget.name, baseline)
        return result
    result.unit, result.band = measured.unit, measured.band
    result.baseline = measured.baseline if baseline else None
    result.candidate, result.limit = measured.candidate, _limit(budget, measured, comparison)
    result.status, why = _judged(budget, measured, result.limit, comparison)
    result.why = "; ".join(filter(None, (why, measured.note)))
    return result


def _judged(
    budget: Budget, measured: _Measured, limit: float, comparison: SoundingComparison
) -> tuple[Status, str]:
    """Return the status of a budget, and the reason if it is unknown or kept only because of noise."""
    if budget.relative and measured.why:
        return "unknown", measured.why
    over = (measured.candidate - limit) * (1 if budget.upper else -1)
    if measured.band is None:
        why = incomparable(comparison) or "too few steps to estimate the noise"
        return ("kept", "") if over <= 0 else ("unknown", f"inconclusive: {why}")
    if over > measured.band:
        beyond = not budget.upper and measured.at_least
        return ("unknown", BOUND) if beyond else ("exceeded", "")
    if measured.candidate and limit and measured.band > max(-over, abs(limit)):
        return "unknown", f"inconclusive: the noise is larger than the limit; {_quieter(budget, comparison)}"
    if over > 0:
        return "kept", _within(budget, comparison)
    blind = budget.relative and measured.band > abs(limit - measured.baseline)
    return "kept", f"noise exceeds the allowed change; {_quieter(budget, comparison)}" if blind else ""


def _quieter(budget: Budget, comparison: SoundingComparison) -> str:
    """Return advice that reduces the noise."""
    busy = next((a.why for a in comparison.abstained if a.what in (HOST_TIME, STEP_TIME)), "")
    few = _few(budget, comparison)
    return busy or (
        _too_few(few) if few is not None else "record each side several times, on an idle machine"
    )


def _unknown(name: str, baseline: bool) -> str:
    """Return why a figure is unknown, and the remedy."""
    if name.startswith(f"{LEDGER}."):
        return "no entry of either side has this name; `fathom compare --all` lists them"
    sides = " on both sides" if baseline else ""
    return f"not known{sides}: {RECORDED.get(name, OF_GPU)}"


def _within(budget: Budget, comparison: SoundingComparison) -> str:
    """Return why a budget is kept though the figure is beyond its limit."""
    few = _few(budget, comparison)
    if few is None:
        return "beyond the limit, but within noise"
    return f"beyond the limit, but inconclusive: {_too_few(few)}"


def _few(budget: Budget, comparison: SoundingComparison) -> int | None:
    """Return the number of steps behind a figure if it is too small."""
    ledger = budget.name.startswith(f"{LEDGER}.")
    return comparison.few_steps or (comparison.few_windows if ledger else None)


def _too_few(steps: int) -> str:
    return f"too few steps ({steps}; {ENOUGH} are needed)"


def _measured(budget: Budget, comparison: SoundingComparison) -> _Measured | None:
    name = budget.name
    if name == STEP:
        return _step(comparison)
    if name.startswith(f"{LEDGER}."):
        pattern = name.partition(".")[2]
        changes = [change for change in comparison.entries if _named(change, pattern)]
        absent = any(fnmatchcase(entry, pattern) for entry in Entry)  # an entry of which there was none
        return _entries(changes, _step(comparison)) if changes or absent else None
    known = {figure.name: figure for figure in comparison.figures if not figure.of}
    for figure, note in ((FIGURES[name], ""), (f"{FIGURES[name]}{OF_DATASHEET}", PUBLISHED)):
        if f := known.get(figure):
            band = f.band if budget.relative or f.band is None else f.band * _larger(f)
            return _Measured(f.unit, f.baseline, f.candidate, band, f.why, note, "candidate" in f.at_least)
    return None


def _larger(figure: Figure) -> float:
    """Return how many times as large the noise of a candidate's rate is, which is a share of the rate."""
    rate = figure.group == STEP and figure.baseline
    return max(1.0, figure.candidate / figure.baseline) if rate else 1.0


def _step(comparison: SoundingComparison) -> _Measured:
    before, after = comparison.baseline_ns / NS_PER_MS, comparison.candidate_ns / NS_PER_MS
    low, high = comparison.interval or (None, None)
    return _Measured("ms", before, after, None if low is None or high is None else (high - low) / 2 * before)


def _named(change: Change, pattern: str) -> bool:
    """Return whether the pattern names the entry, its kernel or its op: `compute`, `compute *gemm*`."""
    detailed = f"{change.entry} {change.detail}", f"{change.entry} {name_of(change)}"
    return any(fnmatchcase(name, pattern) for name in (change.entry, *detailed))


def _entries(changes: list[Change], step: _Measured) -> _Measured:
    """Return the sum of entries, which is 0 if there are none.

    Its noise is that of the entries, and that of the whole step in proportion: clocks move all of them.
    """
    before, after = (
        sum(getattr(change, name) for change in changes) / NS_PER_MS
        for name in ("baseline_ns", "candidate_ns")
    )
    known = [change.band_ns / NS_PER_MS for change in changes if change.band_ns is not None]
    if step.band is None or len(known) < len(changes):
        return _Measured("ms", before, after, None)
    return _Measured("ms", before, after, hypot(*known, step.band * max(before, after) / step.baseline))


def _limit(budget: Budget, measured: _Measured, comparison: SoundingComparison) -> float:
    if budget.relative and budget.unit == "%":
        factor = budget.number / 100
        return measured.baseline * (1 + factor if budget.upper else 1 - factor)
    amount = _amount(budget, measured.unit, comparison)
    if not budget.relative:
        return amount
    return measured.baseline + (amount if budget.upper else -amount)


def _amount(budget: Budget, unit: str, comparison: SoundingComparison) -> float:
    if budget.unit in ("%", OF_STEP) and unit == "ms":
        return budget.number / 100 * comparison.candidate_ns / NS_PER_MS
    sizes = _UNITS[unit]
    if budget.unit not in sizes:
        units = ", ".join(filter(None, sizes)) or "no unit"
        raise BadInputError(f"The budget {budget.name} = {budget.text!r} has the wrong unit; use {units}.")
    return budget.number * sizes[budget.unit]
