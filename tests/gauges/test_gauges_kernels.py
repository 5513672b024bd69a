"""The gauges' CUDA kernels: they compile for every chip, and the machine code does what is counted."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from fathom.gauges import caches, cuda, memory, vector

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
TOOLKIT = Path("/usr/local/cuda/bin")


def tool(name: str) -> str | None:
    return shutil.which(name) or (str(TOOLKIT / name) if (TOOLKIT / name).exists() else None)


needs_nvcc = pytest.mark.skipif(tool("nvcc") is None, reason="no nvcc")
needs_disassembler = pytest.mark.skipif(tool("nvdisasm") is None, reason="no nvdisasm")


class Binaries:
    """Cubins of the sources, compiled when first asked for, each with ptxas's report beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, wanted: tuple[str, str]) -> Path:
        source, arch = wanted
        target = self.folder / f"{source}.{arch}.cubin"
        if not target.exists():
            options = ["-cubin", "-std=c++17", f"-arch={arch}", "-Xptxas=-v", "-o", target]
            command = [tool("nvcc"), *options, cuda.SOURCES / f"{source}.cu"]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            target.with_suffix(".log").write_text(done.stderr)
        return target


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Binaries:
    return Binaries(tmp_path_factory.mktemp("cubins"))


@cache
def disassembly(cubin: Path) -> str:
    return subprocess.run([tool("nvdisasm"), cubin], capture_output=True, text=True, check=True).stdout


def instructions(cubin: Path, function: str) -> Counter[str]:
    """How often each machine instruction stands in a function."""
    body = disassembly(cubin).split(f".text.{function}:")[1].split(".section")[0]
    return Counter(re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+ )?([A-Z][A-Z0-9_.]+)", body, re.M))


def is_multiple(number: int, unit: int) -> bool:
    """Whether `number` is what one pass has, so often as the compiler unrolled the loop."""
    return number == 0 if unit == 0 else number >= unit and number % unit == 0


def count(result: Counter[str], begin: str) -> int:
    return sum(number for name, number in result.items() if name.startswith(begin))


@needs_nvcc
@pytest.mark.parametrize("source", sorted(path.stem for path in cuda.SOURCES.glob("*.cu")))
def test_no_kernel_spills(binaries, source):
    report = binaries[source, "sm_90"].with_suffix(".log").read_text()
    assert set(re.findall(r"(\d+) bytes spill", report)) == {"0"}


@needs_nvcc
@needs_disassembler
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_streams_move_sixteen_bytes_at_a_time(binaries, arch):
    moves = {"read": (1, 0), "write": (0, 1), "copy": (1, 1), "triad": (2, 1)}
    for kind, (loads, stores) in moves.items():
        result = instructions(binaries["memory", arch], f"{kind}_words")
        wide = sum(n for name, n in result.items() if name.startswith("LDG") and ".128" in name)
        assert is_multiple(wide, loads * memory.UNROLL)
        assert is_multiple(result["STG.E.128"], stores * memory.UNROLL)
        assert count(result, "LDL") == count(result, "STL") == 0


@needs_nvcc
@needs_disassembler
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_read_of_the_caches_is_there(binaries, arch):
    """None was merged with its neighbour or moved out of the loop, and all that was read is folded."""
    l2 = instructions(binaries["caches", arch], "read_l2")
    loads = sum(n for name, n in l2.items() if re.fullmatch(r"LDG\.E\.128\.STRONG\.GPU", name))
    assert is_multiple(loads, caches.UNROLL)
    assert count(l2, "LOP3") >= 2 * loads
    shared = instructions(binaries["caches", arch], "read_shared")
    assert is_multiple(shared["LDS.128"], caches.UNROLL)
    assert count(shared, "LOP3") >= 2 * shared["LDS.128"]


@needs_nvcc
@needs_disassembler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(
    ("function", "pipe", "strangers"),
    [
        ("fma_fp32", "FFMA", ("FMUL", "DFMA")),
        ("fma_fp64", "DFMA", ("DMUL", "FFMA")),
        ("exponential", "MUFU.EX2", ("FMUL", "FFMA", "FSETP")),
    ],
)
def test_arithmetic_is_the_pipes_own(binaries, arch, function, pipe, strangers):
    result = instructions(binaries["vector", arch], function)
    width = {name: 2 if name.startswith("FFMA2") else 1 for name in result}
    steps = sum(number * width[name] for name, number in result.items() if name.startswith(pipe))
    assert is_multiple(steps, vector.CHAINS * vector.STEPS)
    assert all(count(result, stranger) == 0 for stranger in strangers)


@pytest.mark.parametrize("module", [memory, caches, vector])
def test_host_and_kernel_agree_on_their_constants(module):
    name = module.__name__.rsplit(".", 1)[1]
    text = (cuda.SOURCES / f"{name}.cu").read_text()
    by_name = {key: int(value) for key, value in re.findall(r"constexpr int (\w+) = (\d+);", text)}
    shared = {key: value for key, value in by_name.items() if hasattr(module, key)}
    assert shared and all(getattr(module, key) == value for key, value in shared.items())
    if "SHARED_WORDS" in by_name:
        assert by_name["SHARED_WORDS"] * module.WORD == module.SHARED_BYTES
