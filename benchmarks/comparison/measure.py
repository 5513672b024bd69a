"""Measure how right `fathom compare` and `fathom gate` are, on recordings from H200s and planted changes.

    python -m benchmarks.comparison.measure [--draws 100]

- sums: pairs of kept recordings whose changes add up to the step's
- equal: pairs of runs drawn from one recording; gates raised, verdicts, entries that are called moved
- planted: a kernel family made 3 % slower in the tables; drawn pairs that name it
- causes: dtype and launches on pairs of the suite of faults, clocks and a library version planted

Runs are drawn with replacement from the steps of a recording, with the scatter between runs that was measured
(see `between`). `fathom run` records ten steps; pairs of the suite have two to four, of which ten are drawn.
Writes `results/comparison.json`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.comparison.planting import copied, drawn, planted, run, slower, with_manifest
from fathom.analysis.compare import Run, SoundingComparison, budgets_in, check, compare
from fathom.analysis.compare.run import CLEAN
from faults import kept

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT / "faults" / "recordings"
EXAMPLES = [
    ROOT / "examples" / "soundings" / f"train_gpt-{name}h200.fathom.zip" for name in ("", "counters-")
]
RESULTS = ROOT / "benchmarks" / "results" / "comparison.json"
# Mended forms whose step is compute-bound, launch-bound, waits for input, or runs many small kernels.
NAMES = (
    *("two.layout_and_precision", "two.tf32_and_optimizer", "two.narrow_and_garbage"),
    *("two.vocabulary_and_loss", "numbers.odd_width", "numbers.head_size", "input.pageable_copy"),
    *("input.few_workers", "host.statistics_on_host", "kernels.norm_by_hand"),
)
BUDGETS = {
    "step": "+1 %",
    "peak_memory": "+1 %",
    "input_wait": "+1 %",
    "ledger": {"compute": "+1 %", "idle: *": "+1 %", "copy": "+1 %"},
}
ENOUGH = 8  # clean steps
DEFAULT = 10  # recorded steps
FACTOR, LEAST = 1.03, 0.05  # of a family's time; a family's least share of the step


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=100)
    draws = parser.parse_args().draws
    with tempfile.TemporaryDirectory() as scratch:
        pairs = {name: _pair(name, Path(scratch)) for name in NAMES}
        runs = {path.name: (path, run(path)) for path in EXAMPLES}
        every = [run for _, run in runs.values()] + [run for (_, run), _ in pairs.values()]
        suite = [a for a, _ in pairs.values() if CLEAN in a[1].entries]
        result = {
            "sums": _sums([(a[1], b[1]) for a, b in pairs.values()] + [tuple(r for _, r in runs.values())]),
            "equal": _equal([r for r in every if len(r.clean_ms) >= ENOUGH], draws),
            "equal, few clean steps": _equal([r for r in every if len(r.clean_ms) < ENOUGH], draws),
            "two runs of train_gpt": _summary(compare(*([r] for _, r in runs.values()))),
            "planted": _planted(list(runs.values()), draws, Path(scratch)),
            "planted, ten of the suite's steps": _planted(suite, draws, Path(scratch), DEFAULT),
            "planted, the suite's steps": _planted(suite, draws, Path(scratch)),
            "causes": _causes(pairs, runs[EXAMPLES[0].name], Path(scratch)),
        }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def _pair(name: str, into: Path) -> tuple[tuple[Path, Run], tuple[Path, Run]]:
    paths = [kept.take(RECORDINGS, f"{name}.{form}.2", into) for form in ("mended", "faulty")]
    mended, faulty = ((path, run(path)) for path in paths)
    return mended, faulty


def _closes(result: SoundingComparison) -> bool:
    return sum(change.change_ns for change in result.entries) == result.candidate_ns - result.baseline_ns


def _sums(pairs: list[tuple[Run, ...]]) -> dict[str, int]:
    every = [compare([a], [b]) for a, b in pairs] + [compare([b], [a]) for a, b in pairs]
    return {"pairs": len(every), "exact": sum(map(_closes, every))}


def _equal(runs: list[Run], draws: int) -> dict[str, object]:
    generator, budgets = np.random.default_rng(1), budgets_in({"budgets": BUDGETS}, "here")
    verdicts: Counter[str] = Counter()
    raised = exact = moved = entries = 0
    for draw in range(draws):
        source = runs[draw % len(runs)]
        result = compare([drawn(source, generator)], [drawn(source, generator)])
        gate = check([b for b in budgets if b.name != "input_wait" or source.examination.input], result)
        raised += any(budget.status == "exceeded" for budget in gate.budgets)
        verdicts[result.verdict] += 1
        exact += _closes(result)
        moved, entries = moved + len(result.moved), entries + len(result.entries)
    return {
        "pairs": draws, "recordings": len(runs), "gates raised": raised, "verdicts": dict(verdicts),
        "exact sums": exact, "entries": entries, "entries called moved": moved,
    }  # fmt: skip


def _planted(
    sources: list[tuple[Path, Run]], draws: int, scratch: Path, windows: int = 0
) -> dict[str, object]:
    generator = np.random.default_rng(2)
    plants = list(_plants(sources, scratch))
    seen = named = false = silent = 0
    for draw in range(draws):
        original, changed, family = plants[draw % len(plants)]
        result = compare(*([drawn(run, generator, windows=windows)] for run in (original, changed)))
        mine = [change for change in result.moved if family in change.candidate_details]
        seen += any(change.change_ns > 0 for change in mine)
        named += bool(result.moved) and family in result.moved[0].candidate_details
        false += len(result.moved) - len(mine)
        silent += not mine and result.few_windows is None
    return {
        "pairs": draws, "families": len(plants), "slower by": FACTOR - 1, "found": seen,
        "named first": named, "missed without a word": silent, "other entries called moved": false,
    }  # fmt: skip


def _plants(sources: list[tuple[Path, Run]], scratch: Path) -> Iterator[tuple[Run, Run, str]]:
    """Yield a run, the same with a slower family, and that family, for all families of LEAST or more."""
    for number, (path, original) in enumerate(sources):
        step = original.step_ns(CLEAN)
        rows = [row for row in original.entries[CLEAN] if row.entry == "compute" and row.ns > LEAST * step]
        for place, row in enumerate(rows):
            with tempfile.TemporaryDirectory(dir=scratch) as folder:
                copy = copied(path, Path(folder) / f"{number}-{place}.fathom")
                slower(copy, FACTOR, pl.col("family") == row.detail)
                yield original, planted(original, copy), row.detail


def _causes(
    pairs: dict[str, tuple[tuple[Path, Run], tuple[Path, Run]]], example: tuple[Path, Run], scratch: Path
) -> dict[str, object]:
    path, original = example
    dtype = compare([pairs["two.layout_and_precision"][0][1]], [pairs["two.layout_and_precision"][1][1]])
    launches = compare([pairs["two.tf32_and_optimizer"][0][1]], [pairs["two.tf32_and_optimizer"][1][1]])
    clocks = copied(path, scratch / "clocks.fathom")
    slower(clocks, 1.1, pl.col("kind") == "compute")
    telemetry = clocks / "rank-0" / "telemetry.parquet"
    lower = (pl.col("sm_clock_mhz") / 1.1).cast(pl.Int32)
    pl.read_parquet(telemetry).with_columns(lower).write_parquet(telemetry)
    library = copied(path, scratch / "library.fathom")
    with_manifest(library, lambda manifest: manifest["versions"].update(torch="2.12.0+cu130"))
    slower(library, 1.3, pl.col("family").str.contains("nvjet"))
    return {
        "dtype": _named(dtype, "dtype"),
        "more launches": _named(launches, "more launches"),
        "clocks": _named(compare([original], [planted(original, clocks)]), "clocks"),
        "library version": _named(compare([original], [planted(original, library)]), "library version"),
    }


def _named(result: SoundingComparison, kind: str) -> list[str]:
    """Return the first causes of a kind, in words."""
    causes = [cause for cause in result.causes if cause.kind == kind]
    return [f"{cause.what}: {cause.baseline} → {cause.candidate}" for cause in causes[:3]]


def _summary(result: SoundingComparison) -> dict[str, object]:
    return {
        "verdict": result.verdict,
        "ratio": result.ratio,
        "interval": result.interval,
        "moved": len(result.moved),
    }


if __name__ == "__main__":
    main()
