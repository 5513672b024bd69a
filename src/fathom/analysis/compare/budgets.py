"""Budgets: limits for the candidate of a comparison, absolute or relative to the baseline.

    [budgets]
    step = "+2 %"                   # at most 2 % above the baseline
    mfu = ">= 40 %"
    peak_memory = "<= 70 GiB"

    [budgets.ledger]
    "idle: input" = "<= 1 % of step"

A budget is exceeded only if the figure is beyond its limit by more than noise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from math import hypot
from typing import Any, Literal

import msgspec

from fathom.analysis.compare.results import ENOUGH, Change, Figure, SoundingComparison
from fathom.analysis.compare.words import name_of
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
    "samples_per_s": "mark the samples of a step with fathom.step(samples=N)",
    "tokens_per_s": "mark the tokens of a step with fathom.step(tokens=N)",
    "input_wait": 'no data loader was seen; limit "idle: input" under [budgets.ledger] instead',
    "host_memory": "the recording has no samples of the host's memory",
    "energy": "the recording has no energy counter or power sensor",
    "power": "the recording has no power sensor",
}
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
    why: str = ""  # the reason if it is unknown, or kept only because of noise


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
    measured = _measured(budget.name, comparison)
    result = Checked(budget.name, budget.text, "unknown")
    if measured is None:
        result.why = _unknown(budget.name)
        return result
    result.unit, result.band = measured.unit, measured.band
    result.baseline = measured.baseline if baseline else None
    result.candidate, result.limit = measured.candidate, _limit(budget, measured, comparison)
    over = (measured.candidate - result.limit) * (1 if budget.upper else -1)
    if over <= 0:
        result.status = "kept"
    elif measured.band is None:
        result.why = "inconclusive: too few steps to estimate the noise"
    else:
        result.status = "exceeded" if over > measured.band else "kept"
        result.why = "" if over > measured.band else _within(budget, comparison)
    return result


def _unknown(name: str) -> str:
    """Return why a figure is not known, and what to do."""
    if name.startswith(f"{LEDGER}."):
        return "no entry of either side has this name; `fathom compare --all` lists them"
    return f"not recorded: {RECORDED.get(name, OF_GPU)}"


def _within(budget: Budget, comparison: SoundingComparison) -> str:
    """Return why a budget is kept though the figure is beyond its limit."""
    ledger = budget.name.startswith(f"{LEDGER}.")
    few = comparison.few_steps or (comparison.few_windows if ledger else None)
    if few is None:
        return "beyond the limit, but within noise"
    return f"beyond the limit, but inconclusive: too few steps ({few}; {ENOUGH} are needed)"


def _measured(name: str, comparison: SoundingComparison) -> _Measured | None:
    if name == STEP:
        return _step(comparison)
    if name.startswith(f"{LEDGER}."):
        pattern = name.partition(".")[2]
        changes = [change for change in comparison.entries if _named(change, pattern)]
        absent = any(fnmatchcase(entry, pattern) for entry in Entry)  # an entry of which there was none
        return _entries(changes, _step(comparison)) if changes or absent else None
    figures: Iterator[Figure] = (f for f in comparison.figures if f.name == FIGURES[name] and not f.of)
    figure = next(figures, None)
    return None if figure is None else _Measured(figure.unit, figure.baseline, figure.candidate, figure.band)


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
