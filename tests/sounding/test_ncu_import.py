"""Results of ncu become a sounding: units, launches, processes, gaps; bad files are one sentence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fathom.cli.main import app
from fathom.errors import BadInputError
from fathom.sounding import Store, import_ncu, is_ncu, open_store
from fathom.sounding.ncu.lines import LONGEST
from fathom.sounding.ncu.numbers import TwoNotationsError, base_unit, decimal_mark, plain, to_float
from tests.support.paths import DATA

NCU = DATA / "ncu"
GEMM = "gemm<float> 128x2x1·256x1x1"


def imported(tmp_path: Path, *names: str) -> Store:
    return import_ncu([NCU / name for name in names], tmp_path / "out.fathom")


def values(store: Store, rank: int | None = None) -> dict[tuple[str, str], dict[str, Any]]:
    rows = store.table("counters", rank).collect().to_dicts()
    return {(row["family"], row["counter"]): row for row in rows}


def test_launches_of_one_family_are_one_row_with_their_scatter(tmp_path: Path) -> None:
    result = values(imported(tmp_path, "raw.csv"))
    occupancy = result[GEMM, "sm__warps_active.avg.pct_of_peak_sustained_active"]
    longer = (48.5 * 28.448 + 49.5 * 28.512) / (28.448 + 28.512)  # by the time of each launch
    assert occupancy["value"] == pytest.approx(longer) and (occupancy["samples"], occupancy["unit"]) == (
        2,
        "%",
    )
    assert occupancy["error"] == pytest.approx(0.5, rel=1e-3)  # of 48.5 and 49.5: sqrt(0.5) / sqrt(2)
    assert result[GEMM, "gpu__time_duration.sum"]["value"] == pytest.approx(28.48e-6)
    assert result[GEMM, "sm__cycles_elapsed.avg.per_second"]["value"] == pytest.approx(1.755e9)
    other = result["gemm<float> 64x1x1·256x1x1", "sm__warps_active.avg.pct_of_peak_sustained_active"]
    assert (other["value"], other["error"]) == (12.25, None)
    assert {row["source"] for row in result.values()} == {"ncu"}


def test_processes_are_ranks_and_devices_are_kept(tmp_path: Path) -> None:
    store = imported(tmp_path, "raw.csv")
    assert [(rank.pid, rank.devices) for rank in store.manifest.ranks] == [
        (4711, {0: "NVIDIA H200"}),
        (4712, {1: "NVIDIA H200"}),
    ]
    assert {family for family, _ in values(store, 1)} == {"triton_poi_fused_add_0 4096x1x1·128x1x1"}


def test_what_ncu_does_not_have_is_no_row_and_is_said(tmp_path: Path) -> None:
    store = imported(tmp_path, "raw.csv")
    counters = {counter for _, counter in values(store)}
    assert "dram__read_throughput.avg.pct_of_peak_sustained_elapsed" not in counters
    assert not any(name.startswith("device__") or name == "launch__func_cache_config" for name in counters)
    assert any("dram__read_throughput" in row["why"] for row in store.manifest.abstained)


def test_kernels_are_kept_with_their_launch_but_never_as_time(tmp_path: Path) -> None:
    store = imported(tmp_path, "raw.csv")
    kernels = store.table("kernels", 0).collect()
    assert kernels["phase"].unique().to_list() == ["counters"]
    assert (kernels["end_ns"] - kernels["start_ns"]).to_list() == [28448, 28512, 6080]
    assert kernels["registers"].to_list() == [128] * 3 and kernels["shared_bytes"].to_list() == [16384] * 3
    assert any(row["what"] == "step time" for row in store.manifest.abstained)
    done = CliRunner().invoke(app, ["report", "--all", str(store.path)])
    assert done.exit_code == 0 and "no step was recorded" in done.stdout and "ncu replays" in done.stdout


def test_labels_become_names_and_equal_labels_stay_separate(tmp_path: Path) -> None:
    store = imported(tmp_path, "details.csv")
    by_name = {counter: row for (_, counter), row in values(store).items()}
    assert by_name["gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"][
        "value"
    ] == pytest.approx(82.31)
    assert by_name["dram__bytes.sum.per_second"]["value"] == pytest.approx(3.91234567890125e12)
    assert by_name["gpu__time_duration.sum"]["value"] == pytest.approx(12.448e-6)
    assert by_name["My Section: My Metric"]["unit"] == "widget"
    assert [problem.what for problem in store.manifest.problems] == ["lines-not-ncu"]


def test_a_german_machine_and_scaled_units(tmp_path: Path) -> None:
    store = imported(tmp_path, "german.csv")
    by_name = {counter: (row["value"], row["unit"]) for (_, counter), row in values(store).items()}
    assert by_name["dram__bytes.sum"] == (pytest.approx(1234.5e6), "B")
    assert by_name["gpu__time_duration.sum"] == (pytest.approx(10.25e-6), "s")
    assert by_name["dram__bytes.sum.per_second"] == (pytest.approx(1204e9), "B/s")
    assert by_name["sm__cycles_elapsed.avg.per_second"] == (pytest.approx(1.41e9), "Hz")
    assert [problem.what for problem in store.manifest.problems] == ["no-launch-shape"]


def test_summaries_count_their_launches_and_know_no_error(tmp_path: Path) -> None:
    rows = values(imported(tmp_path, "summary.csv")).values()
    assert {(row["samples"], row["error"]) for row in rows} == {(12, None)}


def test_a_file_without_streams_is_readable(tmp_path: Path) -> None:
    store = open_store(imported(tmp_path, "summary.csv").path)
    assert store.table("kernels", 0).collect()["stream"].to_list() == [-1]


def test_files_can_be_imported_at_once_and_the_parent_is_kept(tmp_path: Path) -> None:
    paths = [NCU / "raw.csv", NCU / "summary.csv"]
    store = import_ncu(paths, tmp_path / "both.fathom", parent="first.fathom")
    again = open_store(store.path)
    assert len(again.ranks) == 3 and again.manifest.parent == "first.fathom"
    assert again.manifest.made_by == "import"


@pytest.mark.parametrize("kind", ["utf-16", "utf-8-sig"])
def test_what_shells_write_reads_the_same(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "shell.csv"
    file.write_text((NCU / "raw.csv").read_text(), encoding=kind, newline="\r\n")
    item, other = imported(tmp_path, "raw.csv"), import_ncu([file], tmp_path / "other.fathom")
    assert item.table("counters").collect().equals(other.table("counters").collect())


def test_spreadsheets_drop_quotes(tmp_path: Path) -> None:
    file = tmp_path / "plain.csv"
    file.write_text('ID,Kernel Name,Grid Size,Block Size,x__y.sum\n,,,,byte\n0,k,"(2, 1, 1)","(4, 1, 1)",7\n')
    assert values(import_ncu([file], tmp_path / "o"))["k 2x1x1·4x1x1", "x__y.sum"]["value"] == 7


# Bad files: what is written, and a word of the sentence.
ROW = '"0","1","p","h","k","1","7","(1, 1, 1)","(2, 1, 1)","0","9.0"'
RAW = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
    '"Device","CC","a__b.sum"\n"","","","","","","","","","","","byte"\n'
)
LONG = '"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"\n'
BAD = {
    "empty": (b"", "is empty"),
    "not ncu": (b"a,b\n1,2\n", "not a CSV of ncu"),
    "nsys": (b'"Start","Duration","Name"\n1,2,"k"\n', "not a CSV of ncu"),
    "header alone": (RAW.encode(), "no launch with a value"),
    "only n/a": (RAW.encode() + ROW.encode() + b',"n/a"\n', "no launch with a value"),
    "cut row": (RAW.encode() + ROW.encode()[:40] + b"\n", "cut off"),
    "cut in quotes": (RAW.encode() + ROW.encode() + b',"12', "cut off"),
    "row too long": (RAW.encode() + ROW.encode() + b',"1","2"\n', "damaged"),
    "mixed pages": (RAW.encode() + ROW.encode() + b',"1"\n' + LONG.encode(), "mixes two pages"),
    "column twice": (RAW.replace('"CC"', '"Device"').encode(), "twice"),
    "binary": (b"\x00\x01\x02\x03" * 100, "binary"),
    "huge line": (b'"' + b"x" * (LONGEST + 10), "more than 16 MiB"),
    "late binary": (RAW.encode() + b"x" * 5000 + b"\0\n", "binary"),
    "two notations": (RAW.encode() + (ROW + ',"1.5"\n' + ROW + ',"1,5"\n').encode(), "both"),
    "no units": (RAW.partition("\n")[0].encode() + b"\n" + ROW.encode() + b',"1"\n', "no row of units"),
    "a unit of no time": (
        RAW.replace("a__b.sum", "gpu__time_duration.sum").encode() + ROW.encode() + b',"1"\n',
        "in 'byte', which is not a unit of time",
    ),
    "no IDs": (RAW.replace('"ID"', '"Number"').encode() + ROW.encode() + b',"1"\n', "no column ID"),
    "no permission": (
        b"==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n",
        "ERR_NVGPUCTRPERM",
    ),
}


@pytest.mark.parametrize(("data", "word"), BAD.values(), ids=BAD.keys())
def test_bad_files_are_one_sentence_and_leave_nothing(tmp_path: Path, data: bytes, word: str) -> None:
    file = tmp_path / "bad.csv"
    file.write_bytes(data)
    done = CliRunner().invoke(app, ["import", str(file), "-o", str(tmp_path / "out.fathom")])
    assert done.exit_code == 2 and word in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and done.stderr.rstrip().endswith(".")
    assert not (tmp_path / "out.fathom").exists()


def test_nothing_at_the_path_and_folders(tmp_path: Path) -> None:
    for path in (tmp_path / "none.csv", tmp_path):
        done = CliRunner().invoke(app, ["import", str(path)])
        assert done.exit_code == 2 and done.stderr.count("\n") == 1
    with pytest.raises(BadInputError):
        import_ncu([tmp_path / "none.csv"], tmp_path / "o")


def test_the_command_knows_results_of_ncu_by_what_they_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "profile.log"
    log.write_bytes((NCU / "raw.csv").read_bytes())
    done = CliRunner().invoke(app, ["import", str(log)])
    assert done.exit_code == 0 and "21 counters" in done.stdout
    trace = tmp_path / "trace.json"
    trace.write_text('{"traceEvents": [], "note": "Kernel Name"}')
    assert not is_ncu(trace)
    both = CliRunner().invoke(app, ["import", str(log), str(trace)])
    assert both.exit_code == 2 and "cannot be combined" in both.stderr


@given(st.floats(-1e15, 1e15, allow_nan=False), st.integers(0, 6), st.sampled_from(["en", "de", "fr", "ch"]))
def test_numbers_come_back_from_any_notation(value: float, decimals: int, language: str) -> None:
    english = f"{value:,.{decimals}f}"
    signs = {"en": ",.", "de": ".,", "fr": "\u202f,", "ch": "'."}[language]
    text = english.translate(str.maketrans(",.", signs))
    witness = plain(f"12{signs[1]}5")
    number = plain(text)
    assert number is not None and witness is not None
    assert to_float(number, decimal_mark([number, witness])) == float(f"{value:.{decimals}f}")


def test_two_notations_are_refused() -> None:
    with pytest.raises(TwoNotationsError):
        decimal_mark(["1,234.5", "1.234,5"])
    assert decimal_mark(["1,234", "17"]) == "."
    assert plain("0x3") is None and plain("CachePreferNone") is None
    assert plain("5 (1; 4)") == "5"


@pytest.mark.parametrize(
    ("unit", "scale", "base"),
    [
        ("Gbyte/second", 1e9, "B/s"),
        ("us", 1e-6, "s"),
        ("msecond", 1e-3, "s"),
        ("Mhz", 1e6, "Hz"),
        ("cycle/nsecond", 1e9, "Hz"),
        ("Kbyte/block", 1e3, "B/block"),
        ("inst/cycle", 1, "inst/cycle"),
        ("register/thread", 1, "register/thread"),
        ("%", 1, "%"),
        ("", 1, ""),
        ("widget", 1, "widget"),
    ],
)
def test_units(unit: str, scale: float, base: str) -> None:
    result, name = base_unit(unit)
    assert math.isclose(result, scale) and name == base


def test_a_thousand_columns_and_launches_are_read(tmp_path: Path) -> None:
    names = [f"m{n}__x.sum" for n in range(300)]
    header = ["ID", "Kernel Name", "Block Size", "Grid Size", *names]
    lines = [",".join(f'"{name}"' for name in header), ",".join(['""'] * len(header))]
    for launch in range(100):
        cells = [str(launch), "k", "(1, 1, 1)", "(1, 1, 1)", *(str(launch) for _ in names)]
        lines.append(",".join(f'"{cell}"' for cell in cells))
    file = tmp_path / "wide.csv"
    file.write_text("\n".join(lines))
    frame = import_ncu([file], tmp_path / "o").table("counters").collect()
    assert len(frame) == 300 and frame.filter(pl.col("value") != 49.5).is_empty()
