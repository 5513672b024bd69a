"""`.ncu-rep` through a stand-in for NVIDIA's `ncu_report`: same calls, values made up."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fathom.cli.main import app
from fathom.errors import BadInputError
from fathom.sounding import import_ncu
from fathom.sounding.ncu.numbers import base_unit, unit_of
from fathom.sounding.ncu.report import reader_folders
from tests.support.paths import DATA

READER = DATA / "ncu" / "stand_in_ncu_report.py"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation with the reader, named by the environment."""
    home = tmp_path / "nsight-compute"
    (home / "extras" / "python").mkdir(parents=True)
    (home / "extras" / "python" / "ncu_report.py").write_bytes(READER.read_bytes())
    monkeypatch.setenv("FATHOM_NCU", str(home / "ncu"))
    return home


def report(tmp_path: Path, content: bytes = b"NVR\0good") -> Path:
    file = tmp_path / "k.ncu-rep"
    file.write_bytes(content)
    return file


def test_metrics_and_shapes(installed: Path, tmp_path: Path) -> None:
    store = import_ncu([report(tmp_path)], tmp_path / "o")
    rows = {row["counter"]: row for row in store.table("counters").collect().to_dicts()}
    assert {row["family"] for row in rows.values()} == {"saxpy<float> 32x1x1·256x1x1"}
    assert rows["gpu__time_duration.sum"]["value"] == pytest.approx(10.5e-6)
    assert (rows["gpu__time_duration.sum"]["samples"], rows["gpu__time_duration.sum"]["error"]) == (
        2,
        pytest.approx(0.5e-6),
    )
    assert "launch__func_cache_config" not in rows and "broken__metric.sum" not in rows
    assert store.manifest.ranks[0].devices == {1: "NVIDIA H200"}
    assert any("broken__metric" in row["why"] for row in store.manifest.abstained)


def test_where_the_warps_wait(installed: Path, tmp_path: Path) -> None:
    spots = import_ncu([report(tmp_path)], tmp_path / "o").manifest.ranks[0].facts["hot_spots"]
    lines = [spot for spot in spots if spot["level"] == "source"]
    assert [(spot["where"], spot["samples"]) for spot in lines] == [("k.cu:2", 220.0), ("k.cu:3", 20.0)]
    assert lines[0]["text"] == "float v = x[32 * i];"
    assert lines[0]["share"] == pytest.approx(220 / 240)
    assert lines[0]["reasons"] == {"long_scoreboard": 200.0, "selected": 20.0}  # never the not-issued ones
    assert lines[0]["waste"] == {"needless sectors": 56.0}
    assert next(spot["where"] for spot in spots if spot["level"] == "sass") == "LDG.E R2, [R4.64]"


@pytest.mark.parametrize(
    ("content", "word"),
    [(b"", "empty"), (b"NVR\0bad", "cannot read it"), (b"NVR\0none", "has no kernel")],
)
def test_bad_reports(installed: Path, tmp_path: Path, content: bytes, word: str) -> None:
    done = CliRunner().invoke(app, ["import", str(report(tmp_path, content)), "-o", str(tmp_path / "o")])
    assert done.exit_code == 2 and word in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "o").exists()


def test_without_a_reader_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fathom.sounding.ncu.report.reader_folders", lambda ncu: iter(()))
    with pytest.raises(BadInputError, match=r"ncu --import k\.ncu-rep --page raw --csv > k\.csv"):
        import_ncu([report(tmp_path)], tmp_path / "o")


def test_a_reader_that_does_not_load(installed: Path, tmp_path: Path) -> None:
    (installed / "extras" / "python" / "ncu_report.py").write_text("raise ImportError('libfoo.so.1')")
    with pytest.raises(BadInputError, match="does not load"):
        import_ncu([report(tmp_path)], tmp_path / "o")


def test_a_reader_that_ends_its_process(installed: Path, tmp_path: Path) -> None:
    reader = installed / "extras" / "python" / "ncu_report.py"
    reader.write_text(reader.read_text() + "\nimport os\ndef load_report(path): os.abort()\n")
    done = CliRunner().invoke(app, ["import", str(report(tmp_path)), "-o", str(tmp_path / "o")])
    assert done.exit_code == 2 and "ended with SIGABRT" in done.stderr and done.stderr.count("\n") == 1
    assert "ncu --import k.ncu-rep --page raw --csv > k.csv" in done.stderr


def test_modules_of_the_current_folder_are_none_of_the_reader_s(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit('mine')")
    monkeypatch.chdir(tmp_path)
    assert import_ncu([report(tmp_path)], tmp_path / "o").table("counters").collect().height


def test_sources_and_complaints_in_any_encoding_are_read(installed: Path, tmp_path: Path) -> None:
    reader = installed / "extras" / "python" / "ncu_report.py"
    text = reader.read_text().replace("float v = x[32 * i];", "float v = x[32 * i]; // \\udce9")
    reader.write_text(text + "\nimport os\nos.write(2, b'\\xff\\xfe strange\\n')\n")
    assert "udce9" in text
    spots = import_ncu([report(tmp_path)], tmp_path / "o").manifest.ranks[0].facts["hot_spots"]
    assert any(spot["text"] == "float v = x[32 * i]; // ?" for spot in spots)


def test_a_reader_that_never_ends_is_ended(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (installed / "extras" / "python" / "ncu_report.py").write_text("import time\ntime.sleep(600)")
    monkeypatch.setattr("fathom.sounding.ncu.report.PATIENCE_S", 3)
    with pytest.raises(BadInputError, match="did not end within 3 s"):
        import_ncu([report(tmp_path)], tmp_path / "o")


def test_units_that_names_tell_are_those_that_ncu_prints() -> None:
    header, units = list(csv.reader((READER.parent / "crafted-h200.csv").open()))[:2]
    by_name = {name: unit_of(name) for name in header if unit_of(name)}
    assert {name: unit for name, unit in zip(header, units, strict=True) if name in by_name} == by_name
    assert set(by_name.values()) == {"%", "ns", "byte", "cycle", "sector", "register/thread", "byte/block"}
    assert "ns" not in (unit for name, unit in zip(header, units, strict=True) if name not in by_name)
    assert base_unit(unit_of("dram__bytes_read.sum.per_second")) == (1.0, "B/s")
    assert base_unit(unit_of("sm__cycles_elapsed.avg.per_second")) == (1.0, "Hz")


def test_the_reader_is_found_beside_a_linked_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "opt" / "nsight-compute" / "2025.3.1"
    (home / "extras" / "python").mkdir(parents=True)
    (home / "ncu").write_text("#!/bin/sh\n")
    (home / "ncu").chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ncu").symlink_to(home / "ncu")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("FATHOM_NCU", raising=False)
    assert home / "extras" / "python" in list(reader_folders(root=tmp_path / "nowhere"))
