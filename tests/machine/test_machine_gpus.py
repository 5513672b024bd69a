"""The inventory of GPUs, with fake drivers."""

from __future__ import annotations

import ctypes
import json
import threading
from types import SimpleNamespace

import pytest

from fathom.machine import cuda, gpus, pci
from fathom.machine.nvml import NvmlMissingError
from tests.support.machine_fakes import H200, FakeNvml, bus, gpu, meshed, no_cuda, pci_device
from tests.support.paths import DATA

MACHINES = DATA / "machine"


def read(nvml, tmp_path, ask_cuda=no_cuda):
    return gpus.read(lambda: nvml, ask_cuda, tmp_path)


def test_without_a_gpu_the_driver_lists_none(tmp_path):
    signals = read(FakeNvml(), tmp_path)
    assert signals["gpus"] == [] and signals["why_no_gpu"] == "the driver lists no GPU"
    assert signals["driver"] == "580.159.04"


def test_an_h200_as_its_driver_describes_it(tmp_path):
    cuda_says = {"0000:10:00.0": {"multiprocessors": 132, "l2_bytes": 62914560, "memory_bus_bits": 6144}}
    clocks = {"MaxClockInfo": lambda kind: {1: 1980, 2: 3201}[kind], "ClockInfo": lambda kind: 345}
    [result] = read(FakeNvml(gpu(0, **clocks)), tmp_path, lambda: cuda_says)["gpus"]
    assert (result["name"], result["architecture"], result["compute_capability"]) == (
        "NVIDIA H200",
        "Hopper",
        "9.0",
    )
    assert (result["multiprocessors"], result["l2_bytes"], result["memory_bus_bits"]) == (132, 62914560, 6144)
    assert (result["sm_clock_max_mhz"], result["memory_clock_max_mhz"], result["sm_clock_mhz"]) == (
        1980,
        3201,
        345,
    )
    assert (result["power_limit_w"], result["power_limit_default_w"]) == (700, 700)
    assert (result["pcie_generation"], result["pcie_width_max"]) == (5, 16)
    assert (result["ecc"], result["mig"], result["persistence"]) == (True, False, True)
    assert result["nvlink"] is None and result["mig_devices"] == []


@pytest.mark.parametrize(
    ("capability", "cores", "expected"),
    [
        ((9, 0), 16896, 132),
        ((8, 0), 6912, 108),
        ((8, 9), 16384, 128),
        ((10, 0), 18944, 148),
        ((99, 0), 5, None),
    ],
)
def test_multiprocessors_follow_from_cores_without_cuda(tmp_path, capability, cores, expected):
    examination = gpu(0, CudaComputeCapability=capability, NumGpuCores=cores)
    assert read(FakeNvml(examination), tmp_path)["gpus"][0]["multiprocessors"] == expected


def test_a_driver_that_refuses_everything_gives_reasons_instead_of_values(tmp_path):
    signals = read(FakeNvml({}), tmp_path)
    [item] = signals["gpus"]
    known = {k for k, v in item.items() if v not in (None, [], {})}
    assert known == {"index", "abstained"}
    assert item["abstained"]["EccMode"] == item["abstained"]["Name"] == "Not Supported"
    assert "L2CacheSize" in item["abstained"]
    assert json.loads(json.dumps(signals)) == signals


def test_a_lost_gpu_keeps_its_index(tmp_path):
    class Lost(FakeNvml):
        def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
            if index == 0:
                raise RuntimeError("GPU is lost")
            return super().nvmlDeviceGetHandleByIndex(index)

    result = read(Lost(gpu(0), gpu(1)), tmp_path)["gpus"]
    assert [item["index"] for item in result] == [0, 1]
    assert result[0]["name"] is None and result[1]["name"] == "NVIDIA H200"


def test_under_mig_the_slices_are_listed_and_cuda_is_not_believed(tmp_path):
    attributes = SimpleNamespace(multiprocessorCount=60)
    part = {"Name": "NVIDIA H200 MIG 3g.71gb", "UUID": "MIG-1", "Attributes_v2": attributes}
    split = gpu(0, MigMode=[1, 1], MaxMigDeviceCount=7, MigDeviceHandleByIndex=lambda i: [part][i])
    slice_of_it = {"0000:10:00.0": {"multiprocessors": 60, "l2_bytes": 1}}
    [result] = read(FakeNvml(split), tmp_path, lambda: slice_of_it)["gpus"]
    assert result["mig"] is True and result["multiprocessors"] == 132 and result["l2_bytes"] is None
    assert result["abstained"]["L2CacheSize"] == "MIG is on"
    assert [(m["name"], m["multiprocessors"]) for m in result["mig_devices"]] == [
        ("NVIDIA H200 MIG 3g.71gb", 60)
    ]


def test_pcie_values_hidden_by_the_driver_come_from_the_kernel(tmp_path):
    hidden = {k: v for k, v in H200.items() if "Pcie" not in k}
    where = pci.address(bus(0))
    pci_device(
        tmp_path,
        f"pci0000:00/{where}",
        current_link_speed="16.0 GT/s PCIe",
        max_link_speed="32.0 GT/s PCIe",
        current_link_width="8",
        max_link_width="16",
        numa_node="1",
        local_cpulist="16-31",
    )
    [result] = read(FakeNvml(gpu(0, hidden)), tmp_path)["gpus"]
    assert (result["pcie_generation"], result["pcie_width"]) == (4, 8)
    assert (result["pcie_generation_max"], result["pcie_width_max"]) == (5, 16)
    assert (result["numa_node"], result["near_cpus"]) == (1, "16-31")


def test_a_driver_that_never_answers_is_given_up(tmp_path):
    end = threading.Event()

    def hang():
        end.wait(60)
        raise NvmlMissingError("too late")

    signals = gpus.read(hang, no_cuda, tmp_path, patience_s=0.05)
    end.set()
    assert signals["gpus"] == [] and "did not answer" in signals["why_no_gpu"]


def test_a_driver_that_answers_nonsense_is_a_reason(tmp_path):
    signals = gpus.read(lambda: object(), no_cuda, tmp_path)
    assert signals["gpus"] == [] and "AttributeError" in signals["why_no_gpu"]


def test_no_driver_is_a_reason(tmp_path):
    def absent():
        raise NvmlMissingError("no driver here")

    assert gpus.read(absent, no_cuda, tmp_path)["why_no_gpu"] == "no driver here"


def printed() -> list[list[str]]:
    lines = (MACHINES / "dgx1-topology.txt").read_text().splitlines()[1:]
    return [line.split()[1:] for line in lines]


def test_the_matrix_of_a_dgx1_matches_nvidia_smi(tmp_path):
    def ends(row):
        return [j for j, cell in enumerate(row) if cell.startswith("NV") for _ in range(int(cell[2:]))]

    nvml = FakeNvml(*(meshed(i, ends(row)) for i, row in enumerate(printed())))
    signals = read(nvml, tmp_path)
    assert signals["links"]["matrix"] == printed()
    assert signals["gpus"][0]["nvlink"]["links"] == 6 and signals["gpus"][0]["nvlink"]["version"] == "4.0"


def test_links_to_switches_reach_every_gpu(tmp_path):
    signals = read(FakeNvml(*(meshed(i, [-1] * 18) for i in range(8))), tmp_path)
    cells = {cell for row in signals["links"]["matrix"] for cell in row}
    assert cells == {"X", "NV18"}


def test_one_link_that_is_off_weakens_its_pairs(tmp_path):
    weak = meshed(0, [-1] * 17 + [None])
    signals = read(FakeNvml(weak, *(meshed(i, [-1] * 18) for i in (1, 2))), tmp_path)
    assert signals["links"]["matrix"] == [["X", "NV17", "NV17"], ["NV17", "X", "NV18"], ["NV17", "NV18", "X"]]
    assert signals["gpus"][0]["nvlink"]["off"] == 1


def test_a_hidden_switch_is_seen_by_peer_access(tmp_path):
    def hidden(index):
        item = meshed(index, [-1] * 18)
        item.pop("NvLinkRemoteDeviceType"), item.pop("NvLinkRemotePciInfo")
        return {**item, "P2PStatus": lambda other, index: 0 if index == 2 else 5}

    assert read(FakeNvml(hidden(0), hidden(1)), tmp_path)["links"]["matrix"] == [["X", "NV18"], ["NV18", "X"]]


@pytest.mark.parametrize(
    ("level", "word"),
    [(0, "PIX"), (10, "PIX"), (20, "PXB"), (30, "PHB"), (40, "NODE"), (50, "SYS"), (7, None)],
)
def test_levels_without_nvlink(tmp_path, level, word):
    pair = (gpu(i, TopologyCommonAncestor=lambda other: level) for i in range(2))
    assert read(FakeNvml(*pair), tmp_path)["links"]["matrix"][0][1] == word


def test_network_devices_stand_in_the_matrix(tmp_path):
    pci_device(
        tmp_path, f"pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/{pci.address(bus(0))}", numa_node="0"
    )
    near = pci_device(
        tmp_path, "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:41:00.0", numa_node="0"
    )
    far = pci_device(tmp_path, "pci0000:80/0000:80:01.0/0000:81:00.0", numa_node="1")
    for name, device in (("mlx5_0", near), ("mlx5_1", far)):
        folder = tmp_path / "sys/class/infiniband" / name
        folder.mkdir(parents=True)
        (folder / "device").symlink_to(device)
    links = read(FakeNvml(gpu(0)), tmp_path)["links"]
    assert links == {
        "names": ["GPU0", "mlx5_0", "mlx5_1"],
        "matrix": [["X", "PIX", "SYS"], ["PIX", "X", "SYS"], ["SYS", "SYS", "X"]],
    }


class Libcuda:
    """`libcuda` with one GPU, through the same pointers as the real one."""

    def __init__(self, init=0, known=(16, 38)):
        self.init, self.known = init, known

    def cuInit(self, flags):  # noqa: N802
        return self.init

    def cuDeviceGetCount(self, count):  # noqa: N802
        count._obj.value = 1
        return 0

    def cuDeviceGet(self, device, index):  # noqa: N802
        device._obj.value = 40 + index
        return 0

    def cuDeviceGetPCIBusId(self, text, size, device):  # noqa: N802
        assert device.value == 40
        ctypes.memmove(text, b"0000:3B:00.0\0", 13)
        return 0

    def cuDeviceGetAttribute(self, value, code, device):  # noqa: N802
        value._obj.value = {16: 132, 38: 62914560}.get(code, 0)
        return 0 if code in self.known else 1


def test_the_cuda_driver_by_its_own_calls():
    assert cuda.ask(Libcuda()) == {"0000:3b:00.0": {"multiprocessors": 132, "l2_bytes": 62914560}}
    assert cuda.ask(Libcuda(known=())) == {"0000:3b:00.0": {}}
    with pytest.raises(cuda.CudaMissingError, match="error 100"):
        cuda.ask(Libcuda(init=100))


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo nonsense", "could not be queried"),
        ('echo \'{"error": "no libcuda"}\'', "no libcuda"),
        ("sleep 60", "did not answer"),
    ],
)
def test_a_cuda_driver_that_fails_fails_alone(tmp_path, script, why):
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\nexec {script}\n" if script.startswith("sleep") else f"#!/bin/sh\n{script}\n"
    )
    python.chmod(0o755)
    with pytest.raises(cuda.CudaMissingError, match=why):
        cuda.attributes(str(python), patience_s=0.3)


def test_a_failed_cuda_driver_is_the_reason_for_its_missing_values(tmp_path):
    def fails():
        raise cuda.CudaMissingError("cuInit failed with error 3")

    [result] = read(FakeNvml(gpu(0)), tmp_path, fails)["gpus"]
    assert (
        result["multiprocessors"] == 132
        and result["abstained"]["L2CacheSize"] == "cuInit failed with error 3"
    )
