"""Every technique: a complete header, forms that compute the reference on the CPU, kernels that compile."""

from __future__ import annotations

import ast
import ctypes
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from functools import partial, wraps
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fathom.lab import GROUPS, Source, Technique, techniques  # noqa: E402
from fathom.lab.technique import (  # noqa: E402
    FOLDER,
    INCLUDE,
    techniques_of,
)
from fathom.referee.address import module_of  # noqa: E402
from fathom.referee.child import guards  # noqa: E402
from fathom.referee.child.values import (  # noqa: E402
    arguments,
    leaves,
    upcast,
)
from fathom.referee.compare.tolerance import ROUNDOFF, SHORT, tolerance  # noqa: E402
from tests.support.cuda_emulator import GXX, KERNEL, Emulated, in_namespace, library  # noqa: E402

pytestmark = pytest.mark.xdist_group("lab")  # the kernels are compiled once
NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
ALL = techniques()


def said(technique: Technique) -> str:
    """The text of its tuned form."""
    return technique.operation.code([technique.operation.functions[technique.function]])


every = pytest.mark.parametrize("technique", ALL.values(), ids=list(ALL))
compiled = pytest.mark.parametrize(
    "technique", [t for t in ALL.values() if t.compiled], ids=[n for n, t in ALL.items() if t.compiled]
)
# Techniques without a form for the processor: PTX that no stand-in has, or devices themselves.
GPU_ALONE = {name for name, t in ALL.items() if "# Only on a GPU:" in said(t)}


def installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the package that it would be in
        return False


@every
def test_the_header_is_complete(technique: Technique) -> None:
    header = technique.header
    assert technique.group in GROUPS
    assert len(header.title) < 80 and header.shows
    short = [name for name in ("idea", "cost", "not_when") if len(getattr(header, name)) <= 40]
    assert not short, "these fields of the header take a sentence of more than 40 characters"
    assert technique.pair.addressed().name == technique.name
    if technique.compiled or "@triton" in technique.code:
        assert "reference" in technique.roles, "kernels cannot be run in double precision"
    if "import triton" in technique.operation.text:
        assert "triton" in header.needs.packages
    if technique.name in GPU_ALONE:
        assert technique.needs.gpu


@every
def test_an_operation_is_short_and_its_name_shadows_nothing(technique: Technique) -> None:
    assert len(technique.operation.text.splitlines()) < 400
    assert all(len(line) <= 120 for path in technique.sources for line in path.read_text().splitlines())
    # The referee imports from the file's folder: a file there must not be taken for a library.
    assert technique.path.stem not in sys.stdlib_module_names
    assert technique.path.stem not in ("torch", "triton", "numpy", "cuda", "fathom", "sympy", "filelock")


def test_names_are_unique() -> None:
    names = [technique.name for path in FOLDER.glob("*.py") for technique in techniques_of(path)]
    assert len(names) == len(set(names)) and set(names) <= ALL.keys()


def test_an_operation_says_what_it_is_and_how_to_run_it() -> None:
    for path in FOLDER.glob("*.py"):
        head = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()
        (command,) = [line.split() for line in head if line.startswith("    fathom lab run ")]
        assert head[0].endswith(".") and 20 < len(head[0]) < 110
        assert command[3:] == [technique.name for technique in techniques_of(path)], path


def test_every_kernel_belongs_to_a_technique() -> None:
    used = {source for technique in ALL.values() for source in technique.sources[1:]}
    assert {*FOLDER.glob("*.cu")} <= used
    for source in used:
        code = "".join(technique.code for technique in ALL.values() if source in technique.sources)
        names = [name for name, _ in KERNEL.findall(source.read_text())]
        assert names and all(f'"{name}"' in code for name in names), source


def test_what_the_compiler_wraps_is_no_cheat(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._compile import _disable_dynamo

    before, seeding = guards.functions(), torch.manual_seed
    monkeypatch.setattr(torch, "manual_seed", _disable_dynamo(seeding))
    assert list(guards.replaced(before)) == []
    monkeypatch.setattr(torch, "manual_seed", wraps(seeding)(lambda seed: seeding(0)))
    assert list(guards.replaced(before)) == [("global-state", "torch.manual_seed")]


# Both forms compute the reference


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="module")
def emulated(folder: Path) -> ctypes.CDLL | None:
    """All kernels for the processor; those that only a GPU runs aside."""
    sources = {path for t in ALL.values() if t.name not in GPU_ALONE for path in t.sources[1:]}
    return library(sorted(sources), folder) if GXX else None


@pytest.fixture
def loaded(technique: Technique, emulated: ctypes.CDLL | None, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The technique's module, its kernels on the processor."""
    if technique.needs.ranks:
        pytest.skip("test_lab_ranks.py runs it on several ranks")
    if technique.name in GPU_ALONE:
        pytest.skip("only a GPU runs it")
    missing = [name for name in technique.header.needs.packages if not installed(name)]
    if missing:
        pytest.skip(f"{missing[0]} is not installed")
    if technique.compiled and emulated is None:
        pytest.skip("no g++")
    module = module_of(str(technique.path))
    # That it can be traced is what matters here, not what the compiler makes of it.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    for name, source in [item for item in vars(module).items() if isinstance(item[1], Source)]:
        monkeypatch.setattr(module, name, Emulated(emulated, source.path.stem))
    return module


def form(technique: Technique, module: ModuleType, role: str) -> Any:
    return getattr(module, technique.roles[role])


def called(function: Any, given: Any) -> dict[str, torch.Tensor]:
    args, kwargs = arguments(given)
    by_name = dict(leaves(function(*args, **kwargs)))
    return {place: torch.as_tensor(leaf).detach() for place, leaf in by_name.items()}


def agree(technique: Technique, mine: torch.Tensor, exact: torch.Tensor, terms: int) -> None:
    kind = str(mine.dtype).removeprefix("torch.")
    claimed = SHORT.get(technique.header.proof.precision or "", kind)
    coarsest = max(kind, claimed, key=lambda name: ROUNDOFF.get(name, 0.0))
    allowed = tolerance(coarsest, technique.header.proof.reduction or terms, mine.numel())
    assert mine.shape == exact.shape
    if allowed is None:
        assert torch.equal(mine, exact.to(mine.dtype))
        return
    assert mine.isfinite().all()
    error = torch.linalg.vector_norm(mine.double() - exact.double()) / torch.linalg.vector_norm(
        exact.double()
    )
    assert float(error) <= allowed.norm


@every
def test_both_forms_compute_the_reference(technique: Technique, loaded: ModuleType) -> None:
    draw, plain = (form(technique, loaded, role) for role in ("inputs", "plain"))
    given = draw(7, "cpu")
    terms = max(
        (max(leaf.shape, default=1) for _, leaf in leaves(given) if hasattr(leaf, "shape")), default=1
    )
    reference = form(technique, loaded, "reference") if "reference" in technique.roles else plain
    exact = called(reference, upcast(draw(7, "cpu")))
    for role in ("plain", "tuned"):
        result = called(form(technique, loaded, role), draw(7, "cpu"))
        assert result.keys() == exact.keys()
        for place, mine in result.items():
            agree(technique, mine, exact[place], terms)
    other = called(plain, draw(8, "cpu"))
    assert any(not torch.equal(other[place], exact[place].to(other[place].dtype)) for place in exact)


@compiled
def test_each_form_launches_kernels_of_its_own(technique: Technique, loaded: ModuleType) -> None:
    used, sources = [], [value for value in vars(loaded).values() if isinstance(value, Emulated)]
    for role in ("plain", "tuned"):
        called(form(technique, loaded, role), form(technique, loaded, "inputs")(1, "cpu"))
        used.append({name for source in sources for name in source.launched})
        for source in sources:
            source.launched.clear()
    assert used[0] and used[1] and used[0] != used[1]


@every
def test_what_a_call_has_to_do_is_told_in_numbers(technique: Technique, loaded: ModuleType) -> None:
    if "work" not in technique.roles:
        return
    args, kwargs = arguments(form(technique, loaded, "inputs")(1, "cpu"))
    reported = form(technique, loaded, "work")(*args, **kwargs)
    assert reported.keys() <= {"flops", "bytes", "unit"} and (reported.get("flops") or reported.get("bytes"))
    assert "flops" not in reported or re.fullmatch(r"(matmul|vector)\.\w+", reported["unit"])


def peak(function: Any, given: Any) -> int:
    """Bytes that a call holds at most at a time, beside its inputs."""
    args, kwargs = arguments(given)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as seen:
        result = function(*args, **kwargs)
    moves = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    assert moves and result is not None
    return max(accumulate(event.nbytes() for event in sorted(moves, key=lambda event: event.start_ns())))


@every
def test_what_is_for_memory_holds_less_of_it(technique: Technique, loaded: ModuleType) -> None:
    if technique.header.gains == "memory":
        given = form(technique, loaded, "inputs")(1, "cpu")
        by_name = {role: peak(form(technique, loaded, role), given) for role in ("plain", "tuned")}
        assert by_name["tuned"] < 0.7 * by_name["plain"]


def test_low_rank_factors_in_turn_need_the_flops_of_the_rank() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    operation = module_of(str(FOLDER / "low_rank.py"))
    given = operation.inputs(1, "cpu")
    (tokens, width), rank = given[0].shape, operation.RANK
    expected = {
        operation.merged: 2 * width**2 * (rank + tokens),
        operation.factors_in_turn: operation.work(*given)["flops"],
    }
    for form, flops in expected.items():
        with FlopCounterMode(display=False) as counter:
            form(*given)
        assert counter.get_total_flops() == flops


@pytest.mark.parametrize("seed", range(5))
def test_documents_give_the_tiles_that_their_pairs_give(seed: int) -> None:
    technique = module_of(str(ALL["document-mask"].path))
    source, side = torch.Generator().manual_seed(seed), technique.TILE
    document = (torch.rand(6 * side, generator=source) < 1 / (60 << seed)).cumsum(0).int()
    at = torch.arange(len(document))
    allowed = (at[:, None] >= at) & (document[:, None] == document)
    pairs = allowed.view(6, side, 6, side).transpose(1, 2).flatten(2)
    full, listed = pairs.all(dim=2), technique._tiles(document)
    for tiles, (many, which) in zip((pairs.any(dim=2) & ~full, full), (listed[:2], listed[2:]), strict=True):
        for row, expected in enumerate(tiles):
            result = which[0, 0, row, : int(many[0, 0, row])].tolist()
            assert sorted(result) == expected.nonzero().flatten().tolist()


# Kernels compile


def build(source: Path) -> tuple[str, ...]:
    """The compiler's options: for Hopper's own instructions, and for kernels that launch kernels."""
    needed = min(technique.needs.capability for technique in ALL.values() if source in technique.sources)
    arch = "-arch=sm_90a" if needed >= 9 else "-arch=sm_80"
    return (arch, "-rdc=true") if "<<<" in source.read_text() else (arch,)


@pytest.fixture(scope="module")
def binaries(folder: Path) -> dict[tuple[str, ...], str]:
    """The messages of ptxas, by the options."""
    by_name: dict[tuple[str, ...], list[Path]] = defaultdict(list)
    for source in sorted({path for technique in ALL.values() for path in technique.sources[1:]}):
        by_name[build(source)].append(source)
    return {options: _compiled(options, sources, folder) for options, sources in by_name.items()}


def _compiled(options: tuple[str, ...], sources: list[Path], folder: Path) -> str:
    if NVCC is None:
        return ""
    file = folder / f"all{'_'.join(options)}.cu"
    file.write_text("".join(map(in_namespace, sources)))
    usual = ["-cubin", "-std=c++17", "-Xptxas=-v", "-I", INCLUDE, "-o", file.with_suffix(".cubin")]
    done = subprocess.run([NVCC, *usual, *options, file], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
@compiled
def test_kernels_compile_and_spill_only_where_that_is_the_point(
    technique: Technique, binaries: dict[tuple[str, ...], str]
) -> None:
    (source,) = technique.sources[1:]
    report = binaries[build(source)]
    for name, _ in KERNEL.findall(source.read_text()):
        part = report.split(f"'{source.stem}__{name}'")[1].split("Compiling entry")[0]
        spilled = int(re.search(r"(\d+) bytes spill stores", part)[1])  # type: ignore[index]
        assert spilled == 0 or technique.header.findings == {"kernels-register-spills": 1}
