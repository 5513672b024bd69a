"""The machine's inventory, on machines that tests make up."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from fathom.machine import cgroup, fingerprint, gpus, inventory, surroundings, survey
from fathom.machine.nvml import NvmlMissingError, visible

UUIDS = ["GPU-aaaa-1", "GPU-aabb-2", "GPU-cccc-3"]


class Nvml:
    """A driver with three GPUs, which reports name, memory and power."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    def nvmlDeviceGetCount(self):  # noqa: N802
        return len(UUIDS)

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetUUID(self, handle):  # noqa: N802
        return UUIDS[handle].encode()

    def nvmlDeviceGetHandleByUUID(self, name):  # noqa: N802
        if name != "MIG-known":
            raise RuntimeError("Not Found")
        return "slice"

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle):  # noqa: N802
        return {"slice": 2}[handle]

    def nvmlDeviceGetName(self, handle):  # noqa: N802
        return f"Chip {handle}"

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        return SimpleNamespace(total=80 << 30)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):  # noqa: N802
        return 700_000

    def nvmlDeviceGetPowerManagementLimitConstraints(self, handle):  # noqa: N802
        return (200_000, 700_000)

    def nvmlDeviceGetCudaComputeCapability(self, handle):  # noqa: N802
        return (9, 0)

    def nvmlDeviceGetMigMode(self, handle):  # noqa: N802
        raise RuntimeError("Not Supported")

    def nvmlSystemGetDriverVersion(self):  # noqa: N802
        return b"580.1"

    def nvmlSystemGetCudaDriverVersion_v2(self):  # noqa: N802
        return 13010


@pytest.mark.parametrize(
    ("setting", "handles"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("2,0", [2, 0]),
        (" 1 , 2", [1, 2]),
        ("GPU-cccc-3", [2]),
        ("GPU-aabb", [1]),
        ("MIG-known", [2]),
        ("MIG-other", []),
        ("0,7,1", [0]),  # CUDA stops at the first device that is none
        ("-1", []),
        ("NoDevFiles", []),
    ],
)
def test_the_programs_devices_are_those_that_cuda_shows_it(setting, handles):
    environment = {} if setting is None else {"CUDA_VISIBLE_DEVICES": setting}
    assert visible(Nvml(), environment) == handles


def test_a_gpu_in_the_units_of_the_inventory():
    read = gpus.read(Nvml)
    assert (read["driver"], read["cuda_driver"], read["why_no_gpu"]) == ("580.1", "13.1", None)
    first = read["gpus"][0]
    assert first["uuid"] == "GPU-aaaa-1" and first["memory_bytes"] == 80 << 30
    assert (first["power_limit_min_w"], first["power_limit_w"], first["power_limit_max_w"]) == (200, 700, 700)
    assert first["compute_capability"] == "9.0" and first["mig"] is None


def test_a_machine_without_a_driver_says_why():
    def absent():
        raise NvmlMissingError("no driver here")

    machine = inventory(lambda: gpus.read(absent))
    assert machine["gpus"] == [] and machine["why_no_gpu"] == "no driver here"
    assert json.loads(json.dumps(machine)) == machine


def test_the_fingerprint_changes_whenever_a_ceiling_may():
    machine = inventory(lambda: gpus.read(Nvml))
    assert fingerprint(machine) == machine["fingerprint"]
    for change in (
        lambda m: m["gpus"][0].update(power_limit_w=400.0),
        lambda m: m["versions"].update(driver="999"),
        lambda m: m["gpus"].pop(),
        lambda m: m["host"]["cpu"].update(model="another"),
    ):
        other = json.loads(json.dumps(machine))
        change(other)
        assert fingerprint(other) != machine["fingerprint"]
    renamed = json.loads(json.dumps(machine))
    renamed["host"].update(hostname="elsewhere", kernel="9")
    assert fingerprint(renamed) == machine["fingerprint"]


def written(root, **files):
    for name, content in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_the_host_as_the_kernel_describes_it(tmp_path):
    root = written(
        tmp_path,
        proc__cpuinfo="processor : 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu hypervisor sse\n",
        proc__meminfo="MemTotal:       1000 kB\nMemFree: 3 kB\n",
        etc__x="",
    )
    (root / "etc/os-release").write_text('NAME="x"\nPRETTY_NAME="Some OS 12"\n')
    for node in ("node0", "node1"):
        (root / "sys/devices/system/node" / node).mkdir(parents=True)
    read = survey.read_host(root)
    assert read["cpu"]["model"] == "Some CPU @ 2 GHz" and read["cpu"]["numa_nodes"] == 2
    assert read["memory_bytes"] == 1_024_000 and read["os"] == "Some OS 12"
    assert read["virtual_machine"] == "yes" and read["container"] is None


@pytest.mark.parametrize(
    ("limit", "cores"), [("max 100000", None), ("150000 100000", 1.5), ("", None), ("400000 100000", 4)]
)
def test_limits_of_the_control_group(tmp_path, limit, cores):
    root = written(tmp_path, sys__fs__cgroup__x=limit, proc__meminfo="MemTotal: 1000 kB\n")
    (root / "sys/fs/cgroup/cpu.max").write_text(limit)
    (root / "sys/fs/cgroup/memory.max").write_text("4096\n")
    assert cgroup.quota(root) == cores and survey.memory_bytes(root) == 4096


def test_an_empty_root_does_not_raise(tmp_path):
    assert survey.read_host(tmp_path)["memory_bytes"] is None


@pytest.mark.parametrize(("mark", "name"), [(".dockerenv", "docker"), ("run/.containerenv", "podman")])
def test_containers_are_known_by_their_marks(tmp_path, mark, name):
    (tmp_path / mark).parent.mkdir(exist_ok=True)
    (tmp_path / mark).write_text("")
    assert surroundings.container(tmp_path) == name
