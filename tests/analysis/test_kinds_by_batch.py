"""Steps whose batches have two sizes are two kinds, if their times differ."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from fathom.analysis.kinds_by_batch import mixed, split_by_batch
from fathom.sounding.schema import conform

MS = 1_000_000
NO_WORK = pl.DataFrame(schema={"what": pl.String, "at": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64})


def program(sizes: list[int | None], lengths_ms: list[float], bounded: bool = False) -> pl.DataFrame:
    """Clean steps, and ten of a timeline."""
    ends = np.cumsum(lengths_ms) * MS
    opens = np.concatenate([[0.0], ends[:-1]])
    columns = {
        "step": range(len(sizes)),
        "mark_ns": opens.astype(np.int64),
        "end_ns": ends.astype(np.int64),
        "phase": ["clean"] * (len(sizes) - 10) + ["timeline"] * 10,
        "kind": ["train"] * len(sizes),
        "samples": pl.Series(sizes, dtype=pl.Int64),
    }
    device = {"device_ns": columns["mark_ns"], "device_end_ns": columns["end_ns"]} if bounded else {}
    return conform("steps", pl.DataFrame(columns | device))


def kernels(steps: pl.DataFrame, share: float = 0.5) -> pl.DataFrame:
    """One kernel in each step of the timeline, in proportion to its samples."""
    rows = steps.filter(phase="timeline")
    lasted = (share * MS * rows["samples"]).cast(pl.Int64)
    return rows.select(
        what=pl.lit("gemm"), at="mark_ns", start_ns="mark_ns", launched=pl.lit(True)
    ).with_columns(end_ns=pl.col("start_ns") + lasted)


def drawn(seed: int, ratio: float, scatter: float) -> pl.DataFrame:
    """Batches of 4 and of 64 samples in random order; large ones take `ratio` times as long."""
    random = np.random.default_rng(seed)
    sizes = [int(size) for size in random.choice([4, 64], 100)]
    return program(sizes, [10 * (ratio if n == 64 else 1.0) * random.lognormal(0, scatter) for n in sizes])


@pytest.mark.parametrize("seed", range(5))
def test_each_size_is_a_kind_even_among_scattering_times(seed: int) -> None:
    steps = drawn(seed, 4.0, 0.6)
    kinds = split_by_batch(steps, NO_WORK)["kind"]
    assert (kinds == "train+4 samples").equals(steps["samples"] == 4)
    assert set(kinds) == {"train", "train+4 samples"}


@pytest.mark.parametrize("seed", range(5))
def test_sizes_that_take_as_long_are_one_kind(seed: int) -> None:
    steps = drawn(seed, 1.1, 0.3)
    assert split_by_batch(steps, NO_WORK).equals(steps)


def test_last_batches_and_unknown_sizes_split_nothing() -> None:
    last = program(([64] * 19 + [4]) * 5, ([40.0] * 19 + [10.0]) * 5)
    assert split_by_batch(last, NO_WORK).equals(last) and mixed(last, "train") == ""
    unknown = program([None, 4] * 50, [40.0, 10.0] * 50)
    assert split_by_batch(unknown, NO_WORK).equals(unknown)


def test_many_sizes_are_one_kind_that_is_a_mix() -> None:
    sizes = [int(n) for n in np.random.default_rng(1).integers(1, 65, 100)]
    steps = program(sizes, [float(n) for n in sizes])
    assert split_by_batch(steps, NO_WORK).equals(steps)
    assert "samples, so the step is a mix" in mixed(steps, "train")
    assert mixed(program([32] * 100, [10.0] * 100), "train") == ""


def test_a_device_needs_its_own_bounds_of_the_steps() -> None:
    marks = program([4, 64] * 50, [30.0] * 100)  # the host runs ahead
    assert split_by_batch(marks, kernels(marks)).equals(marks)
    assert mixed(marks, "train")
    known = program([4, 64] * 50, [2.0, 40.0] * 50, bounded=True)
    assert set(split_by_batch(known, kernels(known))["kind"]) == {"train", "train+4 samples"}
