"""Fit the planner's constants to at most five published rows of each GPU type, and keep them as its data.

python -m benchmarks.plan.calibrate          # writes src/fathom/planner/training/constants.yaml
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.plan.published import Run, as_table, read
from fathom.planner.serving import Fit, fitted
from fathom.planner.training import Constants, Step, names_used, peak_bytes, priors, rates_of
from fathom.planner.training.rates import share_of
from fathom.units import GIB

TARGET = Path(__file__).parents[2] / "src" / "fathom" / "planner" / "training" / "constants.yaml"
PER_TYPE = 5  # rows of a GPU type
DENSE, EXPERTS, MEMORY = 0.035, 0.12, 0.015  # spread of a published row about any model, in the logarithm
_MEMORY = "memory"
_FEW = (1.645**2 + 1) / 4  # over the count: by this, the 95 % point of Student's t lies beyond the normal one
_STEP, _TURNS, _DRAWS = 0.02, 6, 24


def predict_s(run: Run, values: Constants) -> float:
    """Return the predicted step time."""
    rates = rates_of(run.system, run.stack, values)
    if run.overlaps_experts:  # the row's note: the exchange hides behind another micro-batch's compute
        rates = replace(rates, expert_serial=0.4 * rates.expert_serial)
    return float(Step(run.model, run.system, run.job, run.layout, rates).seconds()[0])


def predict_gib(run: Run, values: Constants) -> float:
    """Return the predicted peak memory."""
    rates = rates_of(run.system, run.stack, values)
    return float(sum(peak_bytes(run.model, run.job, run.layout, rates).values())[0]) / GIB


def choose(runs: list[Run], seed: int | None = None) -> list[Run]:
    """Return the calibration rows: by group of stack and precision, seats by size, the medoids of each.

    The rule does not look at any result. With a `seed`, rows of each group are drawn instead.
    """
    rng = None if seed is None else np.random.default_rng(seed)
    return [run for mine in as_table(runs).values() for run in _of_type(mine, rng)]


def _of_type(mine: list[Run], rng: np.random.Generator | None) -> list[Run]:
    groups: dict[tuple[str, str, bool], list[Run]] = {}
    for run in mine:
        groups.setdefault(run.group, []).append(run)
    seats = dict.fromkeys(groups, 0)
    for _ in range(min(PER_TYPE, max(1, len(mine) - 2))):
        largest = max(
            groups, key=lambda g: len(groups[g]) / (seats[g] + 0.5) if seats[g] < len(groups[g]) else -1
        )
        seats[largest] += 1
    return [run for group, count in seats.items() for run in _medoids(groups[group], count, rng)]


def _medoids(runs: list[Run], count: int, rng: np.random.Generator | None) -> list[Run]:
    """Return `count` rows to which the others of the group are closest, chosen one by one."""
    if rng is not None:
        return [runs[i] for i in rng.choice(len(runs), count, replace=False)]
    points = np.array([_features(run) for run in runs])
    distance = np.sqrt(((points[:, None] - points[None]) ** 2).sum(2))
    chosen: list[int] = []
    while len(chosen) < count:
        rest = [i for i in range(len(runs)) if i not in chosen]
        chosen.append(min(rest, key=lambda i: distance[:, [*chosen, i]].min(1).sum()))
    return [runs[i] for i in chosen]


def _features(run: Run) -> list[float]:
    sizes = (run.model.parameters**0.5, run.job.seq, run.job.gpus**0.5, float(run.layout.micro[0]) ** 0.5)
    return [*np.log(sizes), 1.5 * (run.layout.recompute[0] == 2)]


def fit(rows: list[Run]) -> Fit:
    """Return the constants that are most likely given priors and `rows`, which weigh less if far off."""
    known = priors()
    names = tuple(known)
    mean = np.log([known[name][0] for name in names])
    spread = np.array([known[name][1] for name in names])
    theta = mean.copy()
    for _ in range(_TURNS):
        residual, jacobian = _linear(rows, names, theta)
        weight = 1 / np.sqrt(1 + (residual[:, None] / 3) ** 2)
        left = np.vstack([jacobian * weight, np.diag(1 / spread)])
        right = np.concatenate([residual * weight[:, 0], (mean - theta) / spread])
        theta = theta + np.clip(np.linalg.lstsq(left, right, rcond=None)[0], -0.5, 0.5)
    return fitted(names, theta, left, residual)


def _linear(rows: list[Run], names: tuple[str, ...], theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what is left to explain, in units of its spread, and how it changes with each constant."""
    at = dict(zip(names, np.exp(theta).tolist(), strict=True))
    residuals, slopes = [], []
    for run in rows:
        for predict, truth, spread in _observed(run):
            before = predict(run, at)
            slope = [
                (np.log(predict(run, at | {name: at[name] * np.exp(_STEP)}) / before) / _STEP)
                if _matters(name, run)
                else 0.0
                for name in names
            ]
            residuals.append(np.log(truth / before) / spread)
            slopes.append(np.array(slope) / spread)
    return np.array(residuals), np.array(slopes)


def _observed(run: Run) -> list:
    observed = [(predict_s, run.step_s, EXPERTS if run.model.is_moe else DENSE)]
    return observed + ([(predict_gib, run.memory_gib, MEMORY)] if run.memory_gib else [])


def _matters(name: str, run: Run) -> bool:
    """Return whether a constant can matter to a row: those of other chips and stacks are left out."""
    part = name.split(".")[0]
    used = names_used(run.system, run.stack)
    if part == "matmul":
        return name in ("matmul.bf16", f"matmul.{share_of(run.job.precision)}")
    return used.get(part, name) == name


def kept(rows: list[Run], result: Fit) -> str:
    """Return the data file of a fit."""
    spreads = np.sqrt(np.diag(result.covariance))
    lines = [
        "# Written by `python -m benchmarks.plan.calibrate`: see docs/decisions/0031-plans.md.",
        "values:",
    ]
    lines += [f"  {name}: {value:.5g}" for name, value in result.values().items()]
    lines += ["spreads:  # of the logarithm"]
    lines += [f"  {name}: {value:.3g}" for name, value in zip(result.names, spreads, strict=True)]
    lines += ["draws:  # of the posterior, a column each"]
    drawn = result.draws(_DRAWS)
    lines += [f"  {name}: [{', '.join(f'{draw[name]:.4g}' for draw in drawn)}]" for name in result.names]
    lines += [f"rows: [{', '.join(run.id for run in rows)}]"]
    lines += ["noise:  # of rows about the fit, in the logarithm", *noise_lines(_scatter(rows, result)), ""]
    return "\n".join(lines)


def _scatter(rows: list[Run], result: Fit) -> Iterator[tuple[str, float]]:
    """Yield the kind of each figure, and how far it lies from the fit."""
    kinds = [
        (_MEMORY if predict is predict_gib else "experts" if run.model.is_moe else "dense", spread)
        for run in rows
        for predict, _, spread in _observed(run)
    ]
    yield from ((kind, spread * left) for (kind, spread), left in zip(kinds, result.scatter, strict=True))


def noise_lines(scatter: Iterable[tuple[str, float]]) -> list[str]:
    """Return the spread by kind as lines of the data file: wider if known from few, as Student's t is."""
    kinds: dict[str, list[float]] = {}
    for kind, value in scatter:
        kinds.setdefault(kind, []).append(value)
    return [
        f"  {kind}: {np.sqrt(np.mean(np.square(v))) * (1 + _FEW / len(v)):.3g}  # {len(v)} figures"
        for kind, v in kinds.items()
    ]


if __name__ == "__main__":
    chosen = choose(read()[0])
    TARGET.write_text(kept(chosen, fit(chosen)))
    print(f"{len(chosen)} rows: {', '.join(run.id for run in chosen)}")
