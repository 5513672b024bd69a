"""`fathom dive`: which kernel and launch, ncu's command line, the answer, and every way to fail."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from fathom.analysis.explaining import explain, rules
from fathom.analysis.measures.formula import FormulaError, names, value_of
from fathom.cli.main import app
from fathom.errors import BadInputError
from fathom.recorder.dive import choose
from fathom.recorder.dive.choosing import selector
from fathom.recorder.origin import signature
from fathom.sounding import Manifest, Rank, Store, Writer, conform, open_store
from fathom.sounding.families import with_families
from tests.support.paths import DATA, TRACES

NCU = DATA / "ncu"
TRANSPOSE = "void transpose<float>(float const*, float*, int)"
BIG, SMALL = ("64x64x1", "32x8x1"), ("32x32x1", "32x8x1")
FAMILY = "transpose<float> 64x64x1·32x8x1"
# One step: what runs in order, and its shape.
STEP = [
    (TRANSPOSE, SMALL),
    ("triton_poi_fused_add_0", ("512x1x1", "128x1x1")),
    (TRANSPOSE, SMALL),
    (TRANSPOSE, BIG),
    (TRANSPOSE, SMALL),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", ("24x1x1", "512x1x1")),
]


def sounding(folder: Path, command: list[str] | None = None, first: int = 5, steps: int = 3) -> Store:
    """Steps `first` and on of a program that repeats STEP."""
    rows = [
        {
            "device": 0,
            "stream": 7,
            "kind": "collective" if name.startswith("nccl") else "compute",
            "name": name,
            "grid": shape[0],
            "block": shape[1],
            "start_ns": (len(STEP) * k + place) * 1000,
            "end_ns": (len(STEP) * k + place) * 1000 + 500 + 10 * place,
            "phase": "timeline",
            "burst": 1,
        }
        for k in range(steps)
        for place, (name, shape) in enumerate(STEP)
    ]
    marks = [len(STEP) * 1000 * k for k in range(steps)]
    table = pl.DataFrame(
        {
            "step": list(range(first, first + steps)),
            "kind": "train",
            "mark_ns": marks,
            "end_ns": [mark + len(STEP) * 1000 for mark in marks],
            "phase": "timeline",
            "burst": 1,
        }
    )
    writer = Writer(folder)
    writer.write(0, "kernels", conform("kernels", with_families(pl.DataFrame(rows))))
    writer.write(0, "steps", conform("steps", table))
    program = [sys.executable, "-c", "pass"] if command is None else command
    return writer.finish(Manifest(name="s", command=program, origin=signature(program), ranks=[Rank(0)]))


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose ncu is the stand-in, first on PATH; Nsight Compute's reader is not there."""
    home = tmp_path / "bin"
    home.mkdir()
    (home / "recorded.csv").write_bytes((NCU / "dive.csv").read_bytes())
    (home / "ncu").write_text(f"#!{sys.executable}\n" + (NCU / "stand_in_ncu.py").read_text())
    (home / "ncu").chmod(0o755)
    monkeypatch.setenv("PATH", str(home))
    monkeypatch.delenv("FATHOM_NCU", raising=False)
    monkeypatch.setattr("fathom.sounding.ncu.report.reader_folders", lambda ncu=None: iter(()))
    monkeypatch.chdir(tmp_path)
    return home


def dive(*words: object) -> subprocess.CompletedProcess[str]:
    done = CliRunner().invoke(app, ["dive", *(str(word) for word in words)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(list(words), done.exit_code, done.stdout, done.stderr)


# Which kernel, which launch


def test_a_settled_launch_is_chosen_so_that_the_shape_is_among_those_profiled(tmp_path: Path) -> None:
    target = choose(sounding(tmp_path / "s.fathom"), "64x64x1")
    assert (target.family, target.rank, target.step) == (FAMILY, 0, 5)
    assert target.skip == 5 * 4  # four transposes a step, whatever their shape
    assert target.count == 4  # one in four has the shape
    order = [shape for name, shape in STEP if name == TRANSPOSE] * 10
    assert all(BIG in order[start : start + target.count] for start in range(20))
    assert choose(open_store(tmp_path / "s.fathom"), FAMILY, launch=2).skip == 2


def test_a_unique_kernel_name_needs_one_launch(tmp_path: Path) -> None:
    target = choose(sounding(tmp_path / "s.fathom"), "TRITON_poi")
    assert (target.base, target.pattern, target.count, target.skip) == (
        "function",
        "^triton_poi_fused_add_0$",
        1,
        5,
    )


@pytest.mark.parametrize(
    ("pattern", "word"),
    [
        ("transpose", "matches 2 families"),
        ("nothing", "matches 'nothing'; the largest"),
        ("tran(", "matches 'tran('"),
        ("AllReduce", "collective"),
    ],
)
def test_impossible_choices_are_reported(tmp_path: Path, pattern: str, word: str) -> None:
    with pytest.raises(BadInputError, match=re.escape(word)):
        choose(sounding(tmp_path / "s.fathom"), pattern)


def test_a_sounding_without_kernels(tmp_path: Path) -> None:
    store = Writer(tmp_path / "s").finish(Manifest(ranks=[Rank(0)]))
    with pytest.raises(BadInputError, match="contains no kernels; if the program uses a GPU"):
        choose(store, "x")


# The same kernel as Kineto and as ncu spell it.
SPELLED = [
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
        "std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)",
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, "
        "std::array<char *, (unsigned long)1>>(int, T2, T3)",
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<double>, "
        "std::array<char *, (unsigned long)1>>(int, T2, T3)",
    ),
    (
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, "
        "float, float const*)",
        "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float, (bool)0>(int, T1 *)",
        "void at::native::<unnamed>::layer_norm_grad_input_kernel<float, float, (bool)0>(int, T1 *)",
    ),
    ("triton_red_fused_1", "triton_red_fused_1", "triton_red_fused_10"),
    ("_Z6saxpyPfi", "_Z6saxpyPfi", "_Z7saxpy2Pfi"),
]


@pytest.mark.parametrize(("ours", "same", "other"), SPELLED)
def test_names_are_found_in_other_spellings_and_not_mistaken(ours: str, same: str, other: str) -> None:
    _, pattern = selector(ours)
    assert re.search(pattern, ours) and re.search(pattern, same)
    assert not re.search(pattern, other)


@pytest.mark.skipif(not TRACES.is_dir(), reason="no real traces")
def test_every_kernel_of_a_real_trace_finds_itself() -> None:
    import gzip

    names: set[str] = set()
    for file in sorted(TRACES.rglob("*.json.gz"), key=lambda f: f.stat().st_size)[:4]:
        events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
        names |= {event["name"] for event in events if event.get("cat") == "kernel"}
    assert names
    for name in names:
        assert re.search(selector(name)[1], name), name


# A dive that works


def test_a_dive_profiles_only_the_kernel_and_explains_it(tmp_path: Path, ncu: Path) -> None:
    first = sounding(tmp_path / "s.fathom", [sys.executable, "-c", "print('the program ran')"])
    before = {file: file.read_bytes() for file in first.path.rglob("*") if file.is_file()}
    done = dive(first.path, "64x64", "-o", tmp_path / "deep.fathom")
    assert done.returncode == 0, done.stderr
    assert "passes over shared memory are repeated because of bank conflicts" in done.stdout
    assert done.stdout.index("94 %") < done.stdout.index("64 %")  # conflicts, then waiting for shared memory
    store = open_store(tmp_path / "deep.fathom").verify()
    assert store.manifest.parent == str(first.path) and store.manifest.made_by == "import"
    counters = store.table("counters").collect()
    assert counters["family"].unique().to_list() == [FAMILY]  # of the two shapes, the one asked for
    assert counters["samples"].unique().to_list() == [1]
    assert (store.path / "kernel.ncu-rep").read_bytes().startswith(b"NVR")
    assert before == {file: file.read_bytes() for file in first.path.rglob("*") if file.is_file()}


def test_ncu_is_called_with_real_clocks_and_caches(
    tmp_path: Path, ncu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FATHOM_RAW", "/somewhere")
    dive(
        sounding(tmp_path / "s.fathom").path,
        FAMILY,
        "--launch",
        7,
        "--set",
        "full",
        "--",
        sys.executable,
        "-V",
    )
    called = json.loads((ncu / "called.json").read_text())
    words = called["words"]
    for option, value in {
        "--clock-control": "none",
        "--cache-control": "none",
        "--target-processes": "all",
        "--graph-profiling": "node",
        "--import-source": "yes",
        "--launch-skip": "7",
        "--launch-count": "4",
        "--kernel-name-base": "demangled",
        "--kernel-name": r"regex:\btranspose\b.*\bfloat\b",
        "--set": "full",
    }.items():
        assert words[words.index(option) + 1] == value, option
    assert "SourceCounters" in words and "MemoryWorkloadAnalysis_Tables" in words
    assert words[-2:] == [sys.executable, "-V"]
    assert called["raw"] is None  # the program is profiled, not recorded


def test_json_and_the_default_name(tmp_path: Path, ncu: Path) -> None:
    done = dive(sounding(tmp_path / "s.fathom").path, FAMILY, "--json")
    document = json.loads(done.stdout)
    assert document["family"] == FAMILY and document["path"] == "s-dive.fathom"
    conflicts = next(fact for fact in document["facts"] if fact["rule"] == "bank_conflicts")
    assert conflicts["value"] == pytest.approx(100 * 63488 / (65536 + 2048)) and conflicts["holds"]
    assert any("tensor" in row["what"] for row in document["unseen"])  # not collected: said, not a zero


def test_hot_spots_come_from_the_report_where_its_reader_is(
    tmp_path: Path, ncu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "extras"
    home.mkdir()
    text = (NCU / "stand_in_ncu_report.py").read_text()
    text = text.replace("saxpy", "transpose").replace("(32, 1, 1)", "(64, 64, 1)")
    (home / "ncu_report.py").write_text(text.replace("(256, 1, 1)", "(32, 8, 1)"))
    monkeypatch.setattr("fathom.sounding.ncu.report.reader_folders", lambda ncu=None: iter((home,)))
    done = dive(sounding(tmp_path / "s.fathom").path, FAMILY)
    assert done.returncode == 0, done.stderr
    assert "k.cu:2  float v = x[32 * i];" in done.stdout and "needless sectors" in done.stdout


@pytest.mark.parametrize(
    ("reader", "why"),
    [
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "ended with SIGSEGV"),
        ("def load_report(path): raise RuntimeError('newer than I am')", "newer than I am"),
        ("raise ImportError('libfoo.so')", "libfoo.so"),
    ],
)
def test_if_the_reader_fails_ncus_output_is_used(
    tmp_path: Path, ncu: Path, monkeypatch: pytest.MonkeyPatch, reader: str, why: str
) -> None:
    (tmp_path / "ncu_report.py").write_text(reader)
    monkeypatch.setattr("fathom.sounding.ncu.report.reader_folders", lambda ncu=None: iter((tmp_path,)))
    done = dive(sounding(tmp_path / "s.fathom").path, FAMILY)
    assert done.returncode == 0 and why in done.stderr and "bank" in done.stdout
    assert "reading ncu's printed output" in done.stderr and "--csv" not in done.stderr


# Every way to fail is one sentence

FAILS = {
    "permission": "NVreg_RestrictProfilingToAdminUsers=0",
    "never": "--launch",
    "fails": "status 3",
    "busy": "another profiler",
    "old": "2022.2",
    "driver": "does not match",
    "strange": "The moon is full",
    "silent": "without a report",
    "empty": "without a report",
}


@pytest.mark.parametrize(("mode", "word"), FAILS.items(), ids=FAILS.keys())
def test_without_a_result_the_reason_is_given(
    tmp_path: Path, ncu: Path, monkeypatch: pytest.MonkeyPatch, mode: str, word: str
) -> None:
    monkeypatch.setenv("STAND_IN_NCU", mode)
    done = dive(sounding(tmp_path / "s.fathom").path, FAMILY)
    refused(done, word)
    assert not (tmp_path / "s-dive.fathom").exists()


def refused(done: subprocess.CompletedProcess[str], word: str) -> None:
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr
    assert word in last and last.startswith("fathom: ") and last.endswith("."), done.stderr


def test_without_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    refused(dive(sounding(tmp_path / "s.fathom").path, FAMILY), "install Nsight Compute")


def test_another_shape_was_reached(tmp_path: Path, ncu: Path) -> None:
    recorded = (NCU / "dive.csv").read_text().replace("(64, 64, 1)", "(8, 8, 1)")
    (ncu / "recorded.csv").write_text(recorded)
    refused(dive(sounding(tmp_path / "s.fathom").path, FAMILY), "8x8x1·32x8x1")


def test_a_report_that_ncu_prints_nothing_of(tmp_path: Path, ncu: Path) -> None:
    (ncu / "recorded.csv").write_text("")
    refused(dive(sounding(tmp_path / "s.fathom").path, FAMILY), "could not read its own report")


@pytest.mark.parametrize(
    ("command", "word"), [([], "after --"), (["python", "t.py", "--token", "<redacted>"], "full command")]
)
def test_a_command_that_is_not_known(tmp_path: Path, ncu: Path, command: list[str], word: str) -> None:
    refused(dive(sounding(tmp_path / "s.fathom", command).path, FAMILY), word)


def test_bad_arguments(tmp_path: Path, ncu: Path) -> None:
    store = sounding(tmp_path / "s.fathom")
    refused(dive(store.path, FAMILY, "--set", "all"), "no set 'all'")
    refused(dive(store.path, FAMILY, "-o", store.path), "already exists")
    refused(dive(tmp_path / "none.fathom", FAMILY), "does not exist")
    refused(dive(store.path, FAMILY, "--", "no-such-program"), "was not found")


# The rules


def test_rules_are_complete_and_their_expressions_can_be_read() -> None:
    for name, rule in rules().items():
        assert math.isfinite(rule.above) != math.isfinite(rule.below), name
        for expression in [*rule.of, *rule.weight]:
            values = {counter: 2.0 + place for place, counter in enumerate(names(expression))}
            assert values and value_of(expression, values) is not None, (name, expression)
            assert not any(re.search("[A-Z]", counter) for counter in values), expression


def test_expressions_abstain_and_refuse() -> None:
    assert value_of("a__x.sum / b__y.sum", {"a__x.sum": 6.0, "b__y.sum": 3.0}) == 2
    assert value_of("a__x.sum / b__y.sum", {"a__x.sum": 6.0, "b__y.sum": 0.0}) is None
    assert value_of("a__x.sum", {}) is None
    for hostile in ("__import__('os')", "(1).__class__", "a__x.sum ** 9 ** 9", "open('x')"):
        with pytest.raises(FormulaError):
            value_of(hostile, {"a__x.sum": 9.0, "__import__": 1.0})


def test_the_strongest_limit_comes_first_and_missing_counters_are_named() -> None:
    result = explain(
        "k",
        {
            "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 91.0,
            "lts__throughput.avg.pct_of_peak_sustained_elapsed": 70.0,
            "sm__warps_active.avg.pct_of_peak_sustained_active": 80.0,
        },
    )
    assert [fact.rule for fact in result.limits] == ["dram", "l2"]
    assert "occupancy" in [fact.rule for fact in result.facts if not fact.holds]
    assert {"what": "tail wave", "why": "without sm__cycles_active.max"} in result.unseen


# Recorded commands from elsewhere


def test_a_command_from_elsewhere_is_shown_and_not_run(tmp_path: Path, ncu: Path) -> None:
    ran = tmp_path / "ran"
    command = [sys.executable, "-c", f"open({str(ran)!r}, 'w')"]
    store = sounding(tmp_path / "s.fathom", command)
    manifest = json.loads((store.path / "manifest.json").read_text())
    for origin in (None, "", "0" * 64, signature(["python", "other.py"])):
        (store.path / "manifest.json").write_text(json.dumps(manifest | {"origin": origin}))
        refused(dive(store.path, FAMILY), "--yes")
        assert str(ran) in dive(store.path, FAMILY).stderr
    assert not ran.exists()
    assert dive(store.path, FAMILY, "--yes", "-o", tmp_path / "deep.fathom").returncode == 0


def test_a_command_signed_by_someone_else_is_not_run(
    tmp_path: Path, ncu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FATHOM_HOME", str(tmp_path / "theirs"))
    store = sounding(tmp_path / "s.fathom")
    key = tmp_path / "theirs" / "key"
    assert key.stat().st_mode & 0o777 == 0o600 and len(key.read_bytes()) == 32
    monkeypatch.setenv("FATHOM_HOME", str(tmp_path / "mine"))
    refused(dive(store.path, FAMILY), "--yes")
    assert not (tmp_path / "mine").exists()
    monkeypatch.setenv("FATHOM_HOME", str(tmp_path / "theirs"))
    key.chmod(0o644)  # others could have signed with it
    refused(dive(store.path, FAMILY), "--yes")
    key.chmod(0o600)
    assert dive(store.path, FAMILY, "-o", tmp_path / "deep.fathom").returncode == 0
