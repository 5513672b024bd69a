"""Comparisons of recordings: changes that add up, noise, alignment, causes, budgets."""

from __future__ import annotations

import random
import tarfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.comparison.planting import copied, drawn, planted, run, slower, with_manifest
from fathom.analysis import account_of
from fathom.analysis.compare import budgets_in, check, compare, run_of
from fathom.analysis.compare.align import align, short
from fathom.analysis.compare.launched import Launched
from fathom.analysis.compare.noise import KNOWN, Variance, band, variances
from fathom.analysis.compare.run import CLEAN, Run, RunEntry
from fathom.analysis.compare.sides import SideEntry, entries_of
from fathom.analysis.rows import rounded_ns
from fathom.errors import BadInputError
from tests.support.examined import imported, of_trace, on_trace
from tests.support.paths import EXAMPLES, RECORDINGS, TRACES

SCRATCH = TemporaryDirectory(prefix="fathom-compare-")
GPT, COUNTERS = "train_gpt-h200.fathom.zip", "train_gpt-counters-h200.fathom.zip"
PAIRS = ("two.layout_and_precision", "two.tf32_and_optimizer", "two.attention_and_norm")


@cache
def example(name: str) -> Run:
    return run(EXAMPLES / name)


@cache
def recordings() -> Path:
    """The pairs of the suite of faults, read from their archive in one pass."""
    with tarfile.open(RECORDINGS / "two.2.tar.xz", "r|xz") as tar:
        for member in tar:
            if member.name.startswith(PAIRS):
                tar.extract(member, SCRATCH.name, filter="data")
    return Path(SCRATCH.name)


@cache
def fault(name: str) -> Run:
    """A recording of an H200 in the suite of faults."""
    return run(recordings() / name)


def pair(name: str) -> tuple[Run, Run]:
    return fault(f"{name}.mended.2"), fault(f"{name}.faulty.2")


def changed(original: Run, **fields) -> Run:
    if "clean_ms" in fields:
        fields = {"clean_steps": len(fields["clean_ms"]), **fields}
    copy = msgspec.json.decode(msgspec.json.encode(original), type=Run)
    return msgspec.structs.replace(copy, name="changed", **fields)


def closes(result) -> bool:
    return sum(change.change_ns for change in result.entries) == result.candidate_ns - result.baseline_ns


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=60))
def test_rounded_times_sum_exactly(values):
    total = round(sum(values) * 1e6)
    assert sum(rounded_ns(values, total)) == total


@pytest.mark.parametrize("name", PAIRS)
def test_changes_sum_to_that_of_the_step(name):
    a, b = pair(name)
    assert closes(compare([a], [b])) and closes(compare([b], [a]))
    assert closes(compare([a, b], [b])) and closes(compare([a, b], [b, a]))


def test_two_runs_of_one_program_do_not_differ():
    result = compare([example(GPT)], [example(COUNTERS)])
    assert result.verdict in ("same", "inconclusive") and closes(result) and not result.moved
    budgets = budgets_in({"budgets": {"step": "+1 %", "peak_memory": "+0 %", "ledger": {"*": "+1 %"}}}, "x")
    assert check(budgets, result).passed


def test_few_steps_decide_nothing_small():
    """Steps of one program that have two lengths, 5 % apart, of which three on each side are of one."""
    lengths = [10.0] * 3, [10.5] * 3
    sides = [
        changed(example(GPT), clean_ms=steps, entries={CLEAN: [RunEntry("compute", "mm", ns, [ns] * 3)]})
        for steps in lengths
        for ns in [round(steps[0] * 1e6)]
    ]
    result = compare(sides[:1], sides[1:])
    assert result.verdict == "inconclusive" and result.few_steps == 3
    assert result.headline.startswith("Inconclusive, too few steps")
    (checked,) = check(budgets_in({"budgets": {"step": "+1 %"}}, "x"), result).budgets
    assert checked.status == "kept" and "too few steps (3" in checked.why
    twice = changed(
        sides[0], clean_ms=[20.0] * 3, entries={CLEAN: [RunEntry("compute", "mm", 20_000_000, [])]}
    )
    assert compare(sides[:1], [twice]).verdict == "slower"


def test_a_mean_of_many_steps_counts_as_many():
    """Short steps have few boundaries on the device: 33 of 0.6 ms may lie between two of them."""
    sides = [
        changed(
            example(GPT),
            clean_ms=[ms],
            clean_steps=33,
            entries={CLEAN: [RunEntry("compute", "mm", round(ms * 1e6), [round(ms * 1e6)] * 4)]},
        )
        for ms in (4.8, 0.6, 5.0)
    ]
    result = compare(sides[:1], sides[1:2])
    assert result.verdict == "faster" and result.few_steps is None
    assert [run.steps for run in (*result.baseline, *result.candidate)] == [33, 33]
    assert compare(sides[:1], sides[2:]).verdict == "inconclusive", "the scatter of one mean is unknown"


def test_other_programs_on_the_host_are_noise():
    """The host's time of two runs may differ as much as other programs' load."""
    sides = [
        changed(
            example(GPT),
            clean_ms=[ms] * 20,
            entries={CLEAN: [RunEntry("ops", "mm", round(ms * 1e6), [round(ms * 1e6)] * 10)]},
            others=others,
        )
        for ms, others in ((10.0, 0.5), (12.5, 0.0))
    ]
    result = compare(sides[:1], sides[1:])
    assert result.verdict == "inconclusive" and not result.moved
    assert any("50 % of the host's processors" in absence.why for absence in result.abstained)
    quiet = [changed(side, others=0.0) for side in sides]
    assert compare(quiet[:1], quiet[1:]).verdict == "slower"


def test_steps_beside_programs_that_use_nearly_all_processors_are_not_comparable():
    """Their noise is a factor without bound, which no interval shows; an op that is gone shows even so."""
    sides = [
        changed(
            example(GPT),
            clean_ms=[ms] * 20,
            entries={CLEAN: [RunEntry("ops", op, round(ms * 1e6), [round(ms * 1e6)] * 10, count=1.0)]},
            others=0.92,
        )
        for op, ms in (("aten::sort", 10.0), ("aten::mul", 12.0))
    ]
    result = compare(sides[:1], sides[1:])
    assert result.verdict == "inconclusive" and result.interval is None
    assert "Not comparable: other programs used 92 % of the host's processors." in result.headline
    assert [(change.detail, change.band_ns) for change in result.moved] == [
        ("aten::mul", None),
        ("aten::sort", None),
    ]
    (budget,) = check(budgets_in({"budgets": {"step": "+1 %"}}, "x"), result).budgets
    assert budget.status == "unknown" and "other programs used 92 %" in budget.why


@pytest.mark.parametrize(("others", "free_ms"), [(0.5, 10.0), (0.8, 25.0), (0.9, 50.0)])
def test_a_program_that_gets_the_rest_of_the_processors_has_not_changed(others: float, free_ms: float):
    """A fair scheduler gives a program with threads for all processors those that others leave."""
    shared_ms = free_ms / (1 - others)
    sides = [
        changed(
            example(GPT),
            clean_ms=[ms] * 20,
            entries={CLEAN: [RunEntry("ops", "mm", round(ms * 1e6), [round(ms * 1e6)] * 10)]},
            others=share,
        )
        for ms, share in ((free_ms, 0.0), (shared_ms, others))
    ]
    for baseline, candidate in (sides, sides[::-1]):
        assert compare([baseline], [candidate]).verdict == "inconclusive"
    several = [
        [msgspec.structs.replace(side, name=f"{n} of {k}") for n in range(4)] for k, side in enumerate(sides)
    ]
    assert compare(*several).verdict == "inconclusive"


def test_opposite_comparisons_have_opposite_changes():
    a, b = pair(PAIRS[0])
    there, back = compare([a], [b]), compare([b], [a])
    assert there.change_ns == -back.change_ns and there.ratio == pytest.approx(1 / back.ratio)
    assert sorted(c.change_ns for c in there.entries) == sorted(-c.change_ns for c in back.entries)


def test_a_slower_kernel_family_is_found_in_the_tables(tmp_path):
    original = example(GPT)
    family = max((row for row in original.entries[CLEAN] if row.entry == "compute"), key=lambda row: row.ns)
    folder = copied(EXAMPLES / GPT, tmp_path / "slower.fathom")
    slower(folder, 1.03, pl.col("family") == family.detail)
    result = compare([original], [planted(original, folder)])
    assert [change.detail for change in result.moved] == [family.detail]
    assert result.moved[0].change_ns == pytest.approx(0.03 * family.ns, rel=0.01)
    assert result.change_ns == pytest.approx(0.03 * family.ns, rel=0.15) and closes(result)


def test_drawn_runs_raise_no_gate():
    generator = np.random.default_rng(5)
    budgets = budgets_in({"budgets": {"step": "+1 %", "ledger": {"compute": "+1 %", "idle: *": "+1 %"}}}, "x")
    for _ in range(5):
        result = compare([drawn(example(GPT), generator)], [changed(drawn(example(GPT), generator))])
        assert result.verdict not in ("slower", "faster") and check(budgets, result).passed and closes(result)


def test_a_disturbed_host_is_no_difference():
    """Steps that scatter by 30 % say nothing about a change of 25 %: the load may have changed."""
    generator = np.random.default_rng(2)
    each = generator.normal(1, 0.3, (2, 20)).clip(0.3) * [[10.0], [12.5]]
    sides = [
        changed(
            example(GPT), clean_ms=steps.tolist(), entries={CLEAN: [RunEntry("ops", "mm", ns, [ns] * 10)]}
        )
        for steps in each
        for ns in [round(float(np.median(steps)) * 1e6)]
    ]
    assert compare(sides[:1], sides[1:]).verdict == "inconclusive"


def test_lower_precision_is_the_cause():
    """The program multiplies in fp32 instead of bf16, and the launches of casts are gone."""
    a, b = pair("two.layout_and_precision")
    causes = compare([a], [b]).causes
    dtypes = [cause for cause in causes if cause.kind == "dtype"]
    assert dtypes and all((cause.baseline, cause.candidate) == ("bf16", "fp32") for cause in dtypes[:1])
    assert dtypes[0].change_ms > 0


def test_more_launches_are_the_cause():
    """The optimizer updates each parameter by itself."""
    a, b = pair("two.tf32_and_optimizer")
    more = [cause for cause in compare([a], [b]).causes if cause.kind == "more launches"]
    assert more and more[0].launches[1] > more[0].launches[0]


def test_slower_clocks_are_the_cause(tmp_path):
    original = example(GPT)
    folder = copied(EXAMPLES / GPT, tmp_path / "clocks.fathom")
    slower(folder, 1.1, pl.col("kind") == "compute")
    telemetry = folder / "rank-0" / "telemetry.parquet"
    clock = (pl.col("sm_clock_mhz") / 1.1).cast(pl.Int32)
    pl.read_parquet(telemetry).with_columns(clock).write_parquet(telemetry)
    result = compare([original], [planted(original, folder)])
    named = {cause.kind for change in result.moved for cause in change.causes if change.entry == "compute"}
    assert result.verdict == "slower" and named == {"clocks"}
    assert result.causes[0].kind == "clocks" and result.causes[0].candidate == "1800 MHz"


def test_another_library_is_the_cause(tmp_path):
    original = example(GPT)
    folder = copied(EXAMPLES / GPT, tmp_path / "library.fathom")
    with_manifest(folder, lambda manifest: manifest["versions"].update(torch="2.12.0+cu130"))
    kernels = folder / "rank-0" / "kernels.parquet"
    new = pl.col("name", "family").str.replace("nvjet_sm90_tst", "nvjet_sm90_other", literal=True)
    pl.read_parquet(kernels).with_columns(new).write_parquet(kernels)
    slower(folder, 1.3, pl.col("family").str.starts_with("nvjet_sm90_other"))
    result = compare([original], [planted(original, folder)])
    kinds = {cause.kind for cause in result.causes}
    assert {"library version", "kernel choice"} <= kinds
    assert ("torch", "2.11.0+cu130", "2.12.0+cu130") in {
        (c.what, c.baseline, c.candidate) for c in result.causes
    }
    assert not any(change.aligned.endswith("only") for change in result.moved)


def entry(detail: str, ns: int, op: str = "", module: str = "", kind: str = "compute") -> SideEntry:
    return SideEntry([(kind, detail)], ns, [float(ns)], [], 0.0, 1.0, Launched(op, module))


def test_entries_are_aligned_although_names_changed():
    left = [
        entry("ampere_sgemm_128x64_tn 6x1x1·128x1x1", 10, "aten::mm", "Linear_0"),
        entry("add<float> 64x1x1·128x1x1", 5, "aten::add"),
        entry("train (train.py:12)", 4, kind="idle: python"),
        entry("HtoD pageable", 3, kind="copy"),
        entry("gone 1x1x1·1x1x1", 2, "aten::gone"),
    ]
    right = [
        entry("volta_sgemm_32x32_nn 3x4x1·256x1x1", 20, "aten::mm", "Linear_0"),
        entry("add<float> 128x1x1·128x1x1", 6, "aten::add"),
        entry("train (train.py:19)", 5, kind="idle: python"),
        entry("HtoD pinned", 1, kind="copy"),
        entry("new 1x1x1·1x1x1", 2, "aten::new"),
    ]
    how = {(a or b).details[0]: how for a, b, how in align(left, right)}
    assert how == {
        left[0].details[0]: "op and module",
        left[1].details[0]: "launch shape",
        left[2].details[0]: "line",
        left[3].details[0]: "direction",
        left[4].details[0]: "baseline only",
        right[4].details[0]: "candidate only",
    }


def test_each_entry_is_aligned_once():
    rows = entries_of([example(GPT)], CLEAN)
    generator = random.Random(3)
    renamed = [
        msgspec.structs.replace(row, keys=[(row.entry, generator.choice(["", "x"]) + row.details[0])])
        for row in rows
    ]
    pairs = list(align(rows, renamed))
    for side, every in ((0, rows), (1, renamed)):
        keys = [key for both in pairs if both[side] for key in both[side].keys]
        assert sorted(keys) == sorted(row.keys[0] for row in every)
        assert sum(both[side].ns for both in pairs if both[side]) == sum(row.ns for row in rows)


def test_the_launch_shape_is_left_out():
    assert short("multi<A, B<float>> 320x1x1·512x1x1") == "multi<A, B<float>>"
    assert short("aten::mm") == "aten::mm"


def test_the_band_holds_in_99_of_100():
    """Differences of runs of two groups that are drawn from one distribution stay within the band."""
    generator, outside = np.random.default_rng(0), 0
    for _ in range(1000):
        sides = [
            [generator.normal(100, 1 / 3**0.5, 6) + generator.normal(0, 0.3) for _ in range(2)] for _ in "ab"
        ]
        means = [float(np.mean(side)) for side in sides]
        parts = [
            part
            for side, mean in zip(sides, means, strict=True)
            for part in variances(mean, [run.mean() for run in side], side, 0.005, 0.003)
        ]
        outside += abs(means[1] - means[0]) > band(parts)
    assert outside <= 15


def test_a_known_variance_gives_a_normal_band():
    assert band([Variance(1.0, 1e6)]) == pytest.approx(2.576, rel=0.001)
    assert band([Variance(1.0, KNOWN)], tests=10) > band([Variance(1.0, KNOWN)])


@on_trace("diff-control")
@pytest.mark.skipif(not TRACES.exists(), reason="the shared traces are not here")
def test_jobs_on_other_machines_are_aligned_by_op():
    """HolisticTraceAnalysis' own pair: kernels of an A100 and of a V100."""
    runs, examination = [], of_trace("diff-control")  # figures are not compared here
    for name in ("diff-control", "diff-test"):
        store = imported(name)
        rank = store.ranks[0]
        runs.append(run_of(store, examination, account_of(store, rank, store.machine)))
    result = compare(runs[:1], runs[1:])
    assert closes(result) and result.basis == "profiled mean" and result.verdict == "slower"
    mm = [change for change in result.entries if change.op == "aten::mm"]
    assert any(
        change.detail.startswith("volta") and "ampere" in str(change.baseline_details) for change in mm
    )
    assert "clean step" in {absence.what for absence in result.abstained}


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("+40 %", "kept"),
        ("+1 %", "exceeded"),
        ("<= 1 s", "kept"),
        ("<= 1 ms", "exceeded"),
        (">= 1 ms", "kept"),
        ("-50 %", "kept"),
        ("+0.01 ms", "exceeded"),
    ],
)
def test_budgets_of_the_step(text, status):
    result = compare([example(GPT)], [changed(example(GPT), **_slower(example(GPT)))])
    (checked,) = check(budgets_in({"budgets": {"step": text}}, "x"), result).budgets
    assert checked.status == status, checked


def test_a_kept_budget_smaller_than_noise_says_so():
    """A step within noise of the baseline keeps +0.01 %, and so would a longer one."""
    result = compare([example(GPT)], [example(GPT)])
    tight, wide = check(budgets_in({"budgets": {"step": "+0.01 %", "power": "+900 %"}}, "x"), result).budgets
    assert (tight.status, wide.status) == ("kept", "kept")
    assert "noise exceeds the allowed change; record each side several times" in tight.why
    assert "noise" not in wide.why


def _slower(source: Run) -> dict:
    """A run whose entries all take 5 % longer."""
    entries = {
        basis: [
            msgspec.structs.replace(row, ns=round(row.ns * 1.05), each=[round(ns * 1.05) for ns in row.each])
            for row in rows
        ]
        for basis, rows in source.entries.items()
    }
    return {"entries": entries, "clean_ms": [ms * 1.05 for ms in source.clean_ms]}


def test_a_missing_figure_does_not_pass():
    result = compare([example(GPT)], [example(GPT)])
    gate = check(budgets_in({"budgets": {"tokens_per_s": ">= 1"}}, "x"), result)
    assert not gate.passed and gate.budgets[0].status == "unknown"


@pytest.mark.parametrize(
    ("budgets", "message"),
    [
        ({}, "no budgets"),
        ({"speed": "+2 %"}, "unknown"),
        ({"step": "fast"}, "not a limit"),
        ({"step": 3}, "not a limit"),
        ({"step": "<= 3 GiB"}, "wrong unit"),
        ({"energy": "<= 3 ms"}, "wrong unit"),
    ],
)
def test_bad_budgets_are_named(budgets, message):
    result = compare([example(GPT)], [example(GPT)])
    with pytest.raises(BadInputError, match=message):
        check(budgets_in({"budgets": budgets}, "fathom.toml"), result)


def test_a_relative_budget_needs_a_baseline():
    result = compare([example(GPT)], [example(GPT)])
    with pytest.raises(BadInputError, match="--baseline"):
        check(budgets_in({"budgets": {"step": "+2 %"}}, "x"), result, baseline=False)


@pytest.mark.parametrize("names", [("decode", "inference of one"), ("prefill", "inference of many")])
def test_steps_whose_attention_was_recognised_on_one_side_only_are_compared(names):
    before, after = (changed(example(GPT), kind=name) for name in names)
    assert compare([before], [after]).kind == names[1]
    with pytest.raises(BadInputError, match="different kinds"):
        compare([before], [changed(example(GPT), kind="train")])


def test_recordings_must_be_comparable():
    with pytest.raises(BadInputError, match="different kinds"):
        compare([example(GPT)], [changed(example(GPT), kind="decode")])
    with pytest.raises(BadInputError, match="given twice"):
        compare([example(GPT)], [example(COUNTERS), example(COUNTERS)])
