"""The crafted kernels: both forms compute what numpy does, compile everywhere, and differ in the flaw."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.paths import ROOT

torch = pytest.importorskip("torch")

from fathom.analysis.measures.formula import names  # noqa: E402
from fathom.diagnosis.kinds import kinds  # noqa: E402
from fathom.gauges.measurements import NotHereError  # noqa: E402
from fathom.referee.address import load  # noqa: E402
from fathom.sounding import Manifest, Rank, Writer, conform  # noqa: E402
from faults.kernels import forms, judge, model, pairs, run  # noqa: E402
from tests.support.cuda_emulator import GXX, Emulated, library  # noqa: E402

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
NVDISASM = shutil.which("nvdisasm") or shutil.which("/usr/local/cuda/bin/nvdisasm")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="no nvcc")


def test_there_are_ten_each_in_a_file_with_what_to_expect() -> None:
    assert len(forms.FLAWS) == 10 and forms.FLAWS.keys() == judge.flaws().keys()
    assert {path.stem for path in forms.HERE.glob("*.cu")} == set(forms.FLAWS)
    for flaw in forms.FLAWS.values():
        text = flaw.source.read_text()
        assert [
            word for word in ("// Idea:", "// Flaw:", "// Shown by:", "// Expected:") if word not in text
        ] == []
        assert sorted(re.findall(rf"({flaw.name}_(?:flawed|mended))\(const float\* from", text)) == [
            f"{flaw.name}_flawed",
            f"{flaw.name}_mended",
        ]


def combined(folder: Path) -> Path:
    """All files in one, each in its own namespace: one call of a compiler is quicker than ten."""
    text = "".join(
        f'namespace {flaw.name} {{\n#include "{flaw.source}"\n}}\n' for flaw in forms.FLAWS.values()
    )
    file = folder / "all.cu"
    file.write_text(text)
    return file


# They compute the same


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels as a library for the CPU."""
    if GXX is None:
        pytest.skip("no g++")
    return library([flaw.source for flaw in forms.FLAWS.values()], tmp_path_factory.mktemp("emulated"))


def kernel(emulated: ctypes.CDLL, flaw: forms.Flaw, form: str) -> run.Kernel:
    """One that runs on the CPU."""
    made = run.Kernel(flaw, form)
    made.source = Emulated(emulated, flaw.name)
    return made


@pytest.mark.parametrize("name", forms.FLAWS)
def test_both_forms_compute_what_numpy_does(emulated: ctypes.CDLL, name: str) -> None:
    flaw, n = forms.FLAWS[name], forms.FLAWS[name].small
    numbers = flaw.make(n, seed=7)
    for form in forms.FORMS:
        to = kernel(emulated, flaw, form)(torch.from_numpy(numbers), n).numpy()
        assert np.abs(to - flaw.expected(numbers, n)).max() <= flaw.tolerance, form
        assert np.any(to)


@pytest.mark.parametrize("name", forms.FLAWS)
def test_the_referee_is_given_the_same_as_functions(emulated: ctypes.CDLL, name: str) -> None:
    pair = pairs.pairs()[name].addressed()
    at = {part: load(str(getattr(pair, part))) for part in ("plain", "tuned", "inputs", "reference", "work")}
    numbers, n = at["inputs"](3, "cpu")
    again, _ = at["inputs"](3, "cpu")
    assert torch.equal(numbers, again) and not torch.equal(numbers, at["inputs"](4, "cpu")[0])
    exact = at["reference"](numbers.double(), n)
    for form in ("plain", "tuned"):
        at[form].source = Emulated(emulated, name)
        items = at[form](numbers, n)
        assert items.shape == exact.shape
        assert float((items.double() - exact.double()).abs().max()) <= forms.FLAWS[name].tolerance
        assert at["work"](numbers, n) == {"bytes": 4 * (numbers.numel() + items.numel())}
    assert at["plain"].form == "flawed" and at["tuned"].form == "mended"


def test_each_pair_names_kinds_that_there_are() -> None:
    result = pairs.pairs()
    assert result.keys() == forms.FLAWS.keys()
    assert {kind for pair in result.values() for kind in pair.findings} <= kinds().keys()
    assert [name for name, pair in result.items() if not pair.findings] == ["special_functions"]


# The compiler's messages


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, int]]]:
    """The messages of ptxas about each kernel, by chip."""
    folder = tmp_path_factory.mktemp("fatbin")
    chips = [f"-gencode=arch=compute_{chip[3:]},code={chip}" for chip in ARCHITECTURES]
    options = [
        "-fatbin",
        "-std=c++17",
        "--threads=0",
        "--resource-usage",
        *chips,
        "-o",
        folder / "all.fatbin",
    ]
    done = subprocess.run([NVCC, *options, combined(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return usage(done.stdout + done.stderr)


def usage(report: str) -> dict[str, dict[str, dict[str, int]]]:
    """Registers, bytes of shared memory, of spills, by chip and kernel."""
    result: dict[str, dict[str, dict[str, int]]] = {}
    for part in re.split(r"Compiling entry function ", report)[1:]:
        kernel, chip = re.findall(r"'(\w+)'", part)[:2]
        numbers = {
            "registers": re.search(r"Used (\d+) registers", part),
            "shared": re.search(r"(\d+) bytes smem", part),
            "spilled": re.search(r"(\d+) bytes spill loads", part),
        }
        by_name = {key: int(hit[1]) if hit else 0 for key, hit in numbers.items()}
        result.setdefault(chip, {})[kernel] = by_name
    return result


@needs_nvcc
@pytest.mark.parametrize("chip", ARCHITECTURES)
def test_they_compile_and_only_the_one_that_shall_spills(compiled: Any, chip: str) -> None:
    kernels = compiled[chip]
    assert kernels.keys() == {f"{name}_{form}" for name in forms.FLAWS for form in forms.FORMS}
    assert {kernel for kernel, said in kernels.items() if said["spilled"]} == {"spills_flawed"}


@needs_nvcc
@pytest.mark.parametrize(("name", "limit"), [("registers", "registers"), ("shared_memory", "shared")])
def test_occupancy_is_limited_by_what_the_file_says(compiled: Any, name: str, limit: str) -> None:
    threads = int(np.prod(forms.FLAWS[name].block))
    by_name = {
        form: model.blocks_held(said["registers"], said["shared"], threads, model.H100)
        for form, said in ((form, compiled["sm_90"][f"{name}_{form}"]) for form in forms.FORMS)
    }
    occupancy = {form: min(blocks.values()) * threads / (64 * 32) for form, blocks in by_name.items()}
    assert min(by_name["flawed"], key=lambda key: by_name["flawed"][key]) == limit
    assert occupancy["flawed"] <= 0.2 and occupancy["mended"] >= 0.9


@needs_nvcc
@pytest.mark.skipif(NVDISASM is None, reason="no nvdisasm")
def test_machine_code_has_the_flaw_and_not_another(tmp_path: Path) -> None:
    cubin = tmp_path / "all.cubin"
    subprocess.run([NVCC, "-cubin", "-arch=sm_90", "-std=c++17", "-o", cubin, combined(tmp_path)], check=True)
    text = subprocess.run([NVDISASM, cubin], capture_output=True, text=True, check=True).stdout

    def count(name: str, form: str, pattern: str) -> int:
        body = text.split(f".text.{name}_{form}:")[1].split(".text.")[0]
        return len(re.findall(rf"\s{pattern}[\s.]", body))

    assert count("special_functions", "flawed", r"MUFU\.EX2") == 16
    assert count("special_functions", "mended", r"MUFU\.EX2") == 1
    assert count("spills", "flawed", "LDL") and not count("spills", "mended", "LDL")
    for form in forms.FORMS:  # one float a load: the compiler joined none
        assert count("strided", form, r"LDG\.E(?!\.\d)") == 1
    assert count("atomics", "mended", "ATOMS")


# The cost of the patterns


def test_sectors_of_a_request() -> None:
    cost = {
        name: model.sectors(map(place, range(32))) for name, place in {**model.LOADS, **model.STORES}.items()
    }
    assert cost == {
        "uncoalesced_flawed": 32,
        "uncoalesced_mended": 4,
        "strided_flawed": 32,
        "strided_mended": 4,
    }
    assert model.sectors([31], size=4) == 2 and model.sectors(range(0, 512, 16), size=16) == 16


def test_passes_over_shared_memory() -> None:
    cost = {name: model.passes(map(place, range(32))) for name, place in model.SHARED.items()}
    assert cost == {"bank_conflicts_flawed": 32, "bank_conflicts_mended": 1}
    assert model.passes([5] * 32) == 1 and model.passes([]) == 0


def test_threads_an_instruction() -> None:
    same = dict.fromkeys(range(4), 100)
    for warp in range(8):
        active = {
            form: model.threads_an_instruction([branch(warp, lane) for lane in range(32)], same)
            for form, branch in model.BRANCHES.items()
        }
        assert active == {"divergence_flawed": 8, "divergence_mended": 32}


def test_every_element_is_taken_once_by_the_mended_divergence() -> None:
    taken = [
        warp // 4 * 128 + lane * 4 + warp % 4 for warp in range(8) for lane in range(32)
    ]  # as the kernel's index is written
    assert sorted(taken) == list(range(256))
    assert all(place % 4 == warp % 4 for warp in range(8) for place in taken[32 * warp : 32 * warp + 32])


def test_waves() -> None:
    sms = 132
    idle = {form: model.idle_in_waves(forms.waves(form, 0, sms)[0], 2 * sms) for form in forms.FORMS}
    assert idle["mended"] == 0 and 0.45 < idle["flawed"] < 0.5


# The judge


def counters(folder: Path, values: dict[str, dict[str, float]], source: str = "ncu") -> Path:
    """A sounding whose kernels have these counters."""
    import polars as pl

    rows = [
        {"device": 0, "family": f"{kernel} 1x1x1·32x1x1", "counter": name, "value": value, "source": source}
        for kernel, named in values.items()
        for name, value in named.items()
    ]
    writer = Writer(folder)
    writer.write(0, "counters", conform("counters", pl.DataFrame(rows)))
    return writer.finish(Manifest(ranks=[Rank(0)])).path


SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
LIVE = "SM_A.TriageCompute.sm__inst_executed_pipe_xu_realtime.avg.pct_of_peak_sustained_elapsed"


def run_judge(out: Path, *paths: Path) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "faults.kernels.judge", *paths, "--out", out]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, {row["flaw"]: row for row in json.loads(out.read_text())}


def test_flaws_are_judged_from_soundings_and_csv(tmp_path: Path) -> None:
    live = counters(
        tmp_path / "live.fathom",
        {"special_functions_flawed": {LIVE: 80.0}, "special_functions_mended": {LIVE: 60.0}},
        "PM sampling",
    )
    table = tmp_path / "ncu.csv"
    lines = [
        ["ID", "Kernel Name", "Block Size", "Grid Size", SECTORS, REQUESTS],
        ["", "", "", "", "sector", ""],
    ]
    for launch, (form, sectors) in enumerate({"flawed": 3200, "mended": 400}.items()):
        name = f"strided_{form}(const float *, float *, int)"
        lines.append([str(launch), name, "(256, 1, 1)", "(9, 1, 1)", str(sectors), "100"])
    table.write_text("\n".join(",".join(f'"{cell}"' for cell in line) for line in lines))
    status, rows = run_judge(tmp_path / "out.json", live, table)
    strided, special = rows["strided"], rows["special_functions"]
    assert (strided["flawed"], strided["mended"], strided["shown"], strided["shown_on_twin"]) == (
        32,
        4,
        True,
        False,
    )
    assert special["source"] == "PM sampling" and special["shown"] and special["shown_on_twin"]
    assert "no counters of spills_flawed and spills_mended" in rows["spills"]["abstained"]
    assert status == 1  # a flaw that shows on its twin, and some that were not analysed


def test_thresholds_lie_between_what_the_model_expects_of_both_forms() -> None:
    read = judge.flaws()
    expected = {
        "uncoalesced": (32, 4),
        "strided": (32, 4),
        "bank_conflicts": (100 * 31 / 33, 0),  # of 32 passes a read and one a write
        "divergence": (8, 32),
        "tail_wave": (49.6, 0),
        "registers": (12.5, 100),
        "shared_memory": (12.5, 100),
    }
    for name, (flawed, mended) in expected.items():
        assert judge.beyond(read[name], flawed) and not judge.beyond(read[name], mended)
    assert all(names(expression) for flaw in read.values() for expression in flaw["of"])


# The driver


def test_the_driver_checks_and_runs_in_steps(emulated: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    profiler = SimpleNamespace(
        cudaProfilerStart=lambda: lines.append("start"), cudaProfilerStop=lambda: lines.append("stop")
    )
    monkeypatch.setattr(torch.cuda, "cudart", lambda: profiler)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: lines.append(f"{len(strided.source.launched)}"))
    flaw = dataclasses.replace(forms.FLAWS["strided"], n=4096)
    strided = kernel(emulated, flaw, "flawed")
    strided.check(5000, "cpu")
    run.steps(strided, 2, 3, "cpu")
    assert lines == ["4", "start", "7", "stop"] and set(strided.source.launched) == {"strided_flawed"}
    wrong = dataclasses.replace(flaw, expected=lambda x, n: 3 * x)
    with pytest.raises(SystemExit, match="strided_flawed is wrong"):
        kernel(emulated, wrong, "flawed").check(4096, "cpu")


def test_without_a_gpu_the_driver_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["run.py", "strided", "flawed"])
    with pytest.raises(SystemExit, match="torch sees none"):
        run.main()


def test_without_its_compiler_the_driver_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise NotHereError("cuda-core is not installed")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(run.Kernel, "check", missing)
    monkeypatch.setattr(sys, "argv", ["run.py", "strided", "flawed"])
    with pytest.raises(SystemExit, match="cuda-core"):
        run.main()
