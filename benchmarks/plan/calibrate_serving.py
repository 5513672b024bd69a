"""Fit the serving constants to at most five published rows of each GPU type, and keep them as data.

python -m benchmarks.plan.calibrate_serving          # writes src/fathom/planner/serving/constants.yaml
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.plan.calibrate import noise_lines
from benchmarks.plan.serving_rows import Row, read
from fathom.planner.serving.constants import names_for, prior
from fathom.planner.serving.fitting import SPREADS, Fit, Observation, fit, sensitivity

TARGET = Path(__file__).parents[2] / "src" / "fathom" / "planner" / "serving" / "constants.yaml"
PER_TYPE, SHARE, DRAWS = 5, 3, 16


def observation(row: Row) -> Observation:
    """Return a row as something to fit to."""
    return Observation(row.measured, row.predict, names_for(row.fleet.decode), row.shorter().predict)


def choose(rows: list[Row], skip: int = 0) -> list[Row]:
    """Return the rows that inform most: greedily by the determinant of the information, never by a result.

    Each GPU type gives at most five, and at most a third of its rows. `skip` leaves out that many of the best
    first choices, to see what another choice would give.
    """
    vectors = {row.id: _informs(row) for row in rows}
    names = sorted({name for slopes in vectors.values() for name in slopes})
    matrices = {id_: _matrix(slopes, names) for id_, slopes in vectors.items()}
    information = np.diag([1 / prior(name)[1] ** 2 for name in names])
    chips = defaultdict(list)
    for row in rows:
        chips[row.chip].append(row)
    chosen: list[Row] = []
    for mine in chips.values():
        for turn in range(min(PER_TYPE, len(mine) // SHARE)):
            rest = [row for row in mine if row not in chosen]
            scores = [_gain(information, matrices[row.id]) for row in rest]
            pick = rest[int(np.argsort(scores)[-1 - (skip if turn < 2 else 0)])]
            information = information + matrices[pick.id].T @ matrices[pick.id]
            chosen.append(pick)
    return chosen


def _informs(row: Row) -> dict[str, list[float]]:
    slopes = sensitivity(observation(row), {})
    return {
        name: [slopes[name.partition("@")[0]][key] / SPREADS[key] for key in row.measured]
        for name in names_for(row.fleet.decode)
    }


def _matrix(slopes: dict[str, list[float]], names: list[str]) -> np.ndarray:
    count = len(next(iter(slopes.values())))
    return np.array([slopes.get(name, [0.0] * count) for name in names]).T


def _gain(information: np.ndarray, rows: np.ndarray) -> float:
    return float(np.linalg.slogdet(np.eye(len(rows)) + rows @ np.linalg.solve(information, rows.T))[1])


def kept(rows: list[Row], result: Fit) -> str:
    """Return the data file of a fit."""
    spreads = np.sqrt(np.diag(result.covariance))
    drawn = result.draws(DRAWS)
    lines = [
        "# Written by `python -m benchmarks.plan.calibrate_serving`: see "
        "docs/decisions/0033-serving-plans.md."
    ]
    lines += ["values:", *(f"  {name}: {value:.5g}" for name, value in result.values().items())]
    lines += ["spreads:  # of the logarithm"]
    lines += [f"  {name}: {value:.3g}" for name, value in zip(result.names, spreads, strict=True)]
    lines += ["draws:  # of the posterior, a column each"]
    lines += [f"  {name}: [{', '.join(_number(d[name]) for d in drawn)}]" for name in result.names]
    lines += [
        "rows:",
        *(f"  - {row.id}" for row in rows),
        "noise:  # of rows about the fit, in the logarithm",
    ]
    return "\n".join([*lines, *noise_lines(_scatter(rows, result)), ""])


def _scatter(rows: list[Row], result: Fit) -> Iterator[tuple[str, float]]:
    """Yield the kind of each figure, and how far it lies from the fit."""
    figures = [(key, row.fleet.decode.model.is_moe) for row in rows for key in row.measured]
    for (key, is_moe), left in zip(figures, result.scatter, strict=True):
        yield key if key == "ttft" else "experts" if is_moe else "dense", SPREADS[key] * left


def _number(value: float) -> str:
    """Return a number as YAML reads one: 1.0e-05, which without its point is a text."""
    text = f"{value:.4g}"
    return text if "." in text or "e" not in text else text.replace("e", ".0e")


if __name__ == "__main__":
    chosen = choose(read()[0])
    TARGET.write_text(kept(chosen, fit([observation(row) for row in chosen])))
    print(f"{len(chosen)} rows:", *(row.id for row in chosen), sep="\n  ")
