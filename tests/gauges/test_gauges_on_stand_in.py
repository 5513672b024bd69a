"""The gauges' GPU code, run where there is no GPU: every ceiling comes out, kernels get what they ask for."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fathom.gauges import (
    attention,
    caches,
    copies,
    cuda,
    gds,
    gpu,
    latency,
    matmul,
    memory,
    pace,
    pacing,
    peers,
    vector,
)
from fathom.gauges.catalogue import BY_ID, FULL, GPU, scope
from fathom.gauges.job import GaugeJob
from fathom.gauges.measurements import NotHereError
from tests.support import stand_in_gpu

FP4 = ("matmul.fp4", "matmul.fp4.sustained")
GPU_IDS = [name for name in FULL if scope(name) == GPU and name != "disk.read.gds" and name not in FP4]
MODULES = (memory, caches, copies, latency, pace, vector, matmul, attention)
PACE = 0.002


@pytest.fixture
def small(monkeypatch):
    """Sizes that a CPU is done with in no time."""
    monkeypatch.setattr(matmul, "SHAPES", ((64,) * 3, (64, 32, 128)))
    monkeypatch.setattr(matmul, "FULL_SHAPES", ((32,) * 3, (64,) * 3))
    monkeypatch.setattr(matmul, "SUSTAINED", (64,) * 3)
    monkeypatch.setattr(matmul, "CHUNK_S", 1e-4)
    for effort in (matmul.TRY, matmul.BEST):
        monkeypatch.setitem(effort, "rest_s", 1e-4)
    monkeypatch.setattr(attention, "LENGTHS", (64,))
    monkeypatch.setattr(attention, "FULL_LENGTHS", (64, 128))
    monkeypatch.setattr(attention, "TOKENS", 128)
    monkeypatch.setattr(copies, "SIZES", (2**16,))
    monkeypatch.setattr(copies, "FULL_SIZES", (2**16,))
    monkeypatch.setattr(latency, "QUEUE", 10)
    monkeypatch.setattr(pace, "DEVICE", "cpu")
    monkeypatch.setattr(pacing, "KINDS", pacing.KINDS[:2])  # test_gauges_pace.py measures all of them
    monkeypatch.setattr(pacing, "PROFILED", 2)


def measure(name: str, **more: object):
    job = GaugeJob(ids=(name,), devices=(0,), pace=PACE, **more)
    function = next(m.GAUGES[name] for m in MODULES if name in m.GAUGES)
    return function(job)


@pytest.mark.parametrize("name", GPU_IDS)
def test_every_ceiling_of_a_gpu_comes_out(monkeypatch, small, name):
    stand_in_gpu.install(monkeypatch)
    result = measure(name)
    assert (result.id, result.unit) == (name, BY_ID[name].unit)
    assert 0 < result.low <= result.value <= result.high < math.inf
    assert result.samples >= 3 and result.device is None
    assert result.series


@pytest.mark.parametrize("name", ["hbm.copy", "copy.h2d.pageable", "matmul.fp16", "attention.forward.bf16"])
def test_a_full_measurement_has_a_longer_series(monkeypatch, small, name):
    stand_in_gpu.install(monkeypatch)
    assert len(measure(name, full=True).series) >= len(measure(name).series)


def test_kernels_are_launched_with_what_they_declare(monkeypatch, small):
    core = stand_in_gpu.install(monkeypatch)
    for name in GPU_IDS:
        if BY_ID[name].group in ("memory", "caches", "vector", "latency"):
            measure(name)
    declared = {"read_words", "write_words", "copy_words", "triad_words", "read_l2", "read_shared"}
    declared |= {"fma_fp32", "fma_fp64", "exponential", "empty", "raise_flag"}
    assert set(core.launched) == declared


@pytest.mark.parametrize("name", ["hbm.read", "hbm.write", "hbm.triad"])
def test_torch_replaces_missing_kernels_and_says_so(monkeypatch, small, name):
    stand_in_gpu.install(monkeypatch, core=False)
    assert any("cuda-core, which is not installed" in flag for flag in measure(name).flags)


def test_launches_are_measured_without_kernels_too(monkeypatch, small):
    stand_in_gpu.install(monkeypatch)
    ways = {row["way"] for row in measure("latency.launch").series}
    stand_in_gpu.install(monkeypatch, core=False)
    fewer = {row["way"] for row in measure("latency.launch").series}
    assert ways - fewer == {"cuda-core", "cuda-core, idle"}
    assert len(fewer) == 2


@pytest.mark.parametrize("name", ["l2.read", "shared.read", "vector.fp64"])
def test_kernel_only_ceilings_are_missing_without_kernels(monkeypatch, small, name):
    stand_in_gpu.install(monkeypatch, core=False)
    with pytest.raises(NotHereError, match="cuda-core"):
        measure(name)


@pytest.mark.parametrize(
    ("name", "capability", "why"),
    [
        ("matmul.fp4", (9, 0), "no fp4"),
        ("matmul.fp8", (8, 0), "no fp8"),
        ("matmul.bf16", (7, 5), "no bf16"),
        ("matmul.tf32", (7, 0), "no tf32"),
        ("attention.forward.bf16", (7, 5), "no bf16"),
    ],
)
def test_ceilings_of_missing_units_are_missing(monkeypatch, small, name, capability, why):
    stand_in_gpu.install(monkeypatch, capability)
    with pytest.raises(NotHereError, match=why):
        measure(name)


@pytest.mark.parametrize("layout", matmul.LAYOUTS)
@pytest.mark.parametrize("dtype", ["fp64", "fp32", "bf16", "fp16", "int8", "fp8"])
def test_products_multiply_what_they_claim(monkeypatch, dtype, layout):
    """The result's shape and a value, against the same operands in double."""
    stand_in_gpu.install(monkeypatch)
    shape, seen = (48, 32, 64), {}

    def spy(name):
        real = getattr(torch, name)

        def call(left, right, **more):
            seen["result"] = real(left, right, **more)
            seen["operands"] = left.double(), right.double()
            return seen["result"]

        return call

    for name in ("mm", "_int_mm", "_scaled_mm"):
        monkeypatch.setattr(torch, name, spy(name))
    matmul.product(matmul.gpu(), dtype, shape, layout)()
    left, right = seen["operands"]
    assert (*left.shape, right.shape[1]) == (48, 64, 32)
    if dtype not in matmul.PLAIN or layout == matmul.LAYOUTS[0]:
        assert right.stride(0) == 1  # column-major, as scaled products demand
    expected = left @ right
    error = (seen["result"].double() - expected).norm() / expected.norm()
    assert error < 0.01


def test_fp4_operands_are_packed_and_scaled_by_sixteens(monkeypatch):
    stand_in_gpu.install(monkeypatch, (10, 0))
    packed = matmul._fp4_matrix(matmul.gpu(), 256, 128)
    assert packed.shape == (256, 64) and packed.dtype == torch.float4_e2m1fn_x2
    scales = matmul._fp4_scales(matmul.gpu(), 200, 128)
    assert scales.numel() == 256 * 8 and scales.dtype == torch.float8_e4m3fn


def test_data_is_random_and_never_zeros(monkeypatch):
    stand_in_gpu.install(monkeypatch)
    for dtype in (torch.float32, torch.bfloat16, torch.int8):
        values = matmul.gpu().random(4096, dtype=dtype).double()
        assert values.std() > 0.9 and values.abs().max() > 2


def test_a_flag_that_never_comes_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(latency, "PATIENCE_S", 0.01)
    with pytest.raises(NotHereError, match="did not reach"):
        latency._wait_for([0], 1, 0.0)


def test_a_missing_backend_is_a_reason(monkeypatch, small):
    stand_in_gpu.install(monkeypatch)
    monkeypatch.setattr(attention, "BACKENDS", {"cudnn": "CUDNN_ATTENTION"})
    with pytest.raises(NotHereError, match="no fused backend"):
        measure("attention.forward.bf16")


def test_pairs_of_gpus_make_a_matrix(monkeypatch):
    three = stand_in_gpu.Torch((9, 0), count=3)
    monkeypatch.setattr(peers, "_torch", lambda job: three)
    monkeypatch.setattr(peers, "SIZE", 2**16)
    peers._matrix.cache_clear()
    job = GaugeJob(ids=("link.peer", "copy.peer"), devices=(4, 5, 6), pace=PACE)
    link = peers.GAUGES["link.peer"](job)
    one_way = {(row["from"], row["to"]) for row in link.series if not row["both_ways"]}
    assert one_way == {(a, b) for a in (4, 5, 6) for b in (4, 5, 6) if a != b}
    assert len([row for row in link.series if row["both_ways"]]) == 3
    assert not link.at["both_ways"]
    assert [result.device for result in peers.GAUGES["copy.peer"](job)] == [4, 5, 6]


def test_one_gpu_has_no_peers():
    for name in ("link.peer", "copy.peer"):
        with pytest.raises(NotHereError, match="one GPU"):
            peers.GAUGES[name](GaugeJob(ids=(name,), devices=(0,)))


class FakeKvikio:
    """kvikio's file handle over plain reads; `mode` is what it says of compatibility."""

    def __init__(self, mode: bool) -> None:
        self.defaults = SimpleNamespace(compat_mode=lambda: mode)

    class CuFile:
        def __init__(self, path: str, mode: str) -> None:
            self.file = Path(path).open("rb")  # noqa: SIM115

        def read(self, buffer: torch.Tensor, size: int, file_offset: int) -> int:
            self.file.seek(file_offset)
            return self.file.readinto(buffer.numpy()[:size])

        def __enter__(self):
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()


@pytest.mark.parametrize("compatible", [False, True])
def test_files_are_read_into_the_gpu(monkeypatch, tmp_path, compatible):
    stand_in_gpu.install(monkeypatch)
    monkeypatch.setattr(gds, "import_module", lambda name: FakeKvikio(compatible))
    monkeypatch.setattr("fathom.gauges.disk.filesystem", lambda place: None)
    items = gds.GAUGES["disk.read.gds"](GaugeJob(ids=("disk.read.gds",), data=str(tmp_path), pace=PACE))
    assert items.value > 0 and (gds.THROUGH_HOST in items.flags) == compatible
    assert list(tmp_path.iterdir()) == []


def test_cuda_core_is_found_under_either_name(monkeypatch):
    stand_in_gpu.install(monkeypatch)
    monkeypatch.undo()
    monkeypatch.setattr(cuda, "gpu", lambda: None)
    core = SimpleNamespace(
        Program=1, launch=1, Device=lambda index: SimpleNamespace(set_current=lambda: None)
    )

    def only(wanted):
        def find(name):
            if name != wanted:
                raise ImportError
            return core

        return find

    for name in ("cuda.core", "cuda.core.experimental"):
        cuda._core.cache_clear()
        monkeypatch.setattr(cuda, "import_module", only(name))
        assert cuda._core() is core
    cuda._core.cache_clear()
    monkeypatch.setattr(cuda, "import_module", only("none"))
    with pytest.raises(NotHereError, match="not installed"):
        cuda._core()
    gpu.gpu.cache_clear()


@pytest.mark.parametrize("size", [1, 7, 8, 20, 24])
def test_every_byte_goes_through_the_buffers(monkeypatch, size):
    monkeypatch.setattr(copies, "CHUNK", 8)
    source = torch.randint(0, 255, (size,), dtype=torch.uint8)
    for copy in ("to_device", "to_host"):
        to = torch.zeros_like(source)
        getattr(copies.DoubleBuffer(stand_in_gpu.Torch((9, 0)), to, source), copy)()
        assert torch.equal(to, source)
