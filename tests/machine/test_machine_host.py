"""The inventory of the host, on fake file systems."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.machine import (
    cgroup,
    cpu,
    disks,
    files,
    libraries,
    network,
    pci,
    surroundings,
    survey,
)
from tests.support.machine_fakes import link, pci_device, write

SPR = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8480C
stepping\t: 8
flags\t\t: fpu sse2 fma avx2 avx512f avx512bw amx_bf16 amx_tile
"""


def two_sockets(root: Path) -> Path:
    """Two sockets of two cores of two threads."""
    for number in range(8):
        core, socket = number % 4, number % 4 // 2
        here = f"sys/devices/system/cpu/cpu{number}"
        write(
            root,
            {
                f"{here}/topology/physical_package_id": f"{socket}\n",
                f"{here}/topology/thread_siblings_list": f"{core},{core + 4}\n",
            },
        )
    cache = "sys/devices/system/cpu/cpu0/cache"
    return write(root, {
        "proc/cpuinfo": SPR,
        "sys/devices/system/cpu/smt/active": "1\n",
        "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3800000\n",
        f"{cache}/index0/level": "1\n",
        f"{cache}/index0/type": "Data\n",
        f"{cache}/index0/size": "48K\n",
        f"{cache}/index0/shared_cpu_list": "0,4\n",
        f"{cache}/index3/level": "3\n",
        f"{cache}/index3/type": "Unified\n",
        f"{cache}/index3/size": "107520K\n",
        f"{cache}/index3/shared_cpu_list": "0-1,4-5\n",
    })  # fmt: skip


def test_sockets_cores_threads_caches_and_instructions(tmp_path):
    read = cpu.read_cpu(two_sockets(tmp_path))
    assert (read["sockets"], read["physical_cores"], read["threads_per_core"], read["smt"]) == (2, 4, 2, True)
    assert (read["vendor"], read["family"], read["model_number"]) == ("GenuineIntel", 6, 143)
    assert read["clock_max_mhz"] == 3800
    assert read["caches"] == [
        {"name": "L1d", "size_bytes": 48 << 10, "shared_by": 2},
        {"name": "L3", "size_bytes": 105 << 20, "shared_by": 4},
    ]
    assert {"avx512f", "amx_bf16"} <= set(read["features"]) and "sse2" not in read["features"]


def test_a_clock_may_stand_in_the_name(tmp_path):
    write(tmp_path, {"proc/cpuinfo": "model name\t: Intel(R) Xeon(R) Processor @ 2.50GHz\n"})
    assert cpu.read_cpu(tmp_path)["clock_nominal_mhz"] == 2500


def test_an_arm_processor(tmp_path):
    write(
        tmp_path,
        {"proc/cpuinfo": "CPU implementer\t: 0x41\nCPU part\t: 0xd4f\nFeatures\t: asimd sve2 bf16\n"},
    )
    read = cpu.read_cpu(tmp_path)
    assert (read["vendor"], read["model_number"]) == ("0x41", 0xD4F)
    assert read["features"] == ["asimd", "sve2", "bf16"]


def test_nodes_with_their_memory_and_distances(tmp_path):
    for node, distance in ((0, "10 21"), (1, "21 10")):
        write(tmp_path, {
            f"sys/devices/system/node/node{node}/cpulist": f"{node * 8}-{node * 8 + 7}\n",
            f"sys/devices/system/node/node{node}/meminfo": f"Node {node} MemTotal:  1000 kB\n",
            f"sys/devices/system/node/node{node}/distance": distance + "\n",
        })  # fmt: skip
    assert cpu.numa_nodes(tmp_path) == [
        {"node": 0, "cpus": "0-7", "memory_bytes": 1_024_000, "distances": [10, 21]},
        {"node": 1, "cpus": "8-15", "memory_bytes": 1_024_000, "distances": [21, 10]},
    ]


def test_disks_by_kind(tmp_path):
    for name, rotational in (("nvme0n1", 0), ("sda", 1), ("sdb", 0), ("vda", 1), ("loop0", 0), ("dm-0", 0)):
        write(
            tmp_path,
            {f"sys/block/{name}/queue/rotational": f"{rotational}\n", f"sys/block/{name}/size": "2000\n"},
        )
    write(tmp_path, {"sys/block/nvme0n1/device/model": "SAMSUNG MZWLO3T8HCLS  \n"})
    result = disks.disks(tmp_path)
    assert [(d["name"], d["kind"]) for d in result] == [
        ("nvme0n1", "NVMe"), ("sda", "HDD"), ("sdb", "SSD"), ("vda", "virtual"),
    ]  # fmt: skip
    assert result[0]["model"] == "SAMSUNG MZWLO3T8HCLS" and result[0]["size_bytes"] == 1_024_000


MOUNTS = """22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
23 22 0:40 / /data rw,relatime - nfs4 filer:/export rw,vers=4.2
24 22 0:41 / /data/my\\040sets rw - xfs /dev/md0 rw
25 22 0:42 / /dev/shm rw,nosuid - tmpfs shm rw,size=65536k
26 22 0:43 / /over rw - ext4 /dev/sda1 rw
27 26 0:44 / /over rw - tmpfs tmpfs rw
a line that is none
"""


@pytest.mark.parametrize(
    ("folder", "kind", "disk"),
    [
        ("/home/me", "ext4", "nvme0n1"),
        ("/data/imagenet", "nfs4", None),
        ("/data/my sets/a", "xfs", None),
        ("/database", "ext4", "nvme0n1"),  # not below /data
        ("/over/x", "tmpfs", None),  # the later mount covers the earlier one
        ("/", "ext4", "nvme0n1"),
    ],
)
def test_the_file_system_of_a_folder(tmp_path, folder, kind, disk):
    write(tmp_path, {"proc/self/mountinfo": MOUNTS, "sys/block/nvme0n1/nvme0n1p2/partition": "2\n"})
    result = disks.filesystem(Path(folder), tmp_path)
    assert (result["type"], result["disk"], result["path"]) == (kind, disk, folder)


def test_shared_memory_has_the_size_of_its_mount(tmp_path):
    assert disks.size_of_shm(tmp_path) is None
    assert disks.size_of_shm(write(tmp_path, {"proc/self/mountinfo": MOUNTS})) == 64 << 20


def test_network_and_rdma_devices(tmp_path):
    nic = pci_device(tmp_path, "pci0000:00/0000:00:01.0/0000:3b:00.0", numa_node="1")
    link(tmp_path, "sys/devices/pci0000:00/0000:00:01.0/0000:3b:00.0/driver", "sys/bus/pci/drivers/mlx5_core")
    for name in ("lo", "ib0", "docker0", "veth1"):
        write(tmp_path, {f"sys/class/net/{name}/operstate": "up\n", f"sys/class/net/{name}/mtu": "4092\n"})
    write(tmp_path, {"sys/class/net/ib0/speed": "400000\n"})
    (tmp_path / "sys/class/net/ib0/device").symlink_to(nic)
    (nic / "net/ib0").mkdir(parents=True)
    port = "sys/class/infiniband/mlx5_0/ports/1"
    write(tmp_path, {
        f"{port}/state": "4: ACTIVE\n",
        f"{port}/rate": "400 Gb/sec (4X NDR)\n",
        f"{port}/link_layer": "InfiniBand\n",
        "sys/class/infiniband/mlx5_0/fw_ver": "28.39.1002\n",
    })  # fmt: skip
    (tmp_path / "sys/class/infiniband/mlx5_0/device").symlink_to(nic)
    [interface] = network.interfaces(tmp_path)
    assert (interface["name"], interface["speed_mbps"], interface["driver"]) == ("ib0", 400000, "mlx5_core")
    assert (interface["pci_bus"], interface["numa_node"]) == ("0000:3b:00.0", 1)
    [adapter] = network.rdma(tmp_path)
    assert adapter["ports"] == [
        {"port": "1", "state": "ACTIVE", "rate_gbps": 400.0, "link_layer": "InfiniBand"}
    ]
    assert (adapter["firmware"], adapter["interfaces"], adapter["numa_node"]) == ("28.39.1002", ["ib0"], 1)


def test_in_a_container_the_virtual_interface_is_listed(tmp_path):
    write(tmp_path, {"sys/class/net/eth0/operstate": "up\n", "sys/class/net/eth0/speed": "-1\n"})
    [interface] = network.interfaces(tmp_path)
    assert interface["name"] == "eth0" and interface["speed_mbps"] is None


@pytest.mark.parametrize(
    ("a", "b", "word"),
    [
        ("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0",
         "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0", "PIX"),
        ("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:05:00.0/0000:06:00.0/0000:03:00.0",
         "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0", "PXB"),
        ("pci0000:00/0000:00:01.0/0000:03:00.0", "pci0000:00/0000:00:02.0/0000:04:00.0", "PHB"),
        ("pci0000:00/0000:00:01.0/0000:03:00.0", "pci0000:40/0000:40:01.0/0000:04:00.0", "NODE"),
        ("pci0000:00/0000:00:01.0/0000:03:00.0", "pci0000:80/0000:80:01.0/0000:04:00.0", "SYS"),
    ],
)  # fmt: skip
def test_relation_of_two_devices(tmp_path, a, b, word):
    for place in (a, b):
        pci_device(tmp_path, place, numa_node="1" if "pci0000:80" in place else "0")
    assert pci.relation(tmp_path, "0000:03:00.0", "00000000:04:00.0") == word
    assert pci.relation(tmp_path, "0000:04:00.0", "0000:03:00.0") == word


def test_across_host_bridges_only_a_single_node_machine_is_certain(tmp_path):
    for number in (0, 4):
        pci_device(tmp_path, f"pci0000:{number}0/0000:0{number}:00.0", numa_node="-1")
    assert pci.relation(tmp_path, "0000:00:00.0", "0000:04:00.0") == "NODE"
    (tmp_path / "sys/devices/system/node/node1").mkdir(parents=True)
    assert pci.relation(tmp_path, "0000:00:00.0", "0000:04:00.0") is None
    assert pci.relation(tmp_path, "0000:00:00.0", "0000:09:00.0") is None


def test_limits_of_the_tightest_group_of_version_2(tmp_path):
    write(tmp_path, {
        "proc/self/cgroup": "0::/kubepods/pod1/c1\n",
        "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
        "sys/fs/cgroup/kubepods/pod1/cpu.max": "800000 100000\n",
        "sys/fs/cgroup/kubepods/pod1/c1/cpu.max": "max 100000\n",
        "sys/fs/cgroup/kubepods/memory.max": "2147483648\n",
        "sys/fs/cgroup/kubepods/pod1/c1/memory.max": "1073741824\n",
        "sys/fs/cgroup/kubepods/pod1/c1/pids.max": "1024\n",
        "sys/fs/cgroup/kubepods/pod1/c1/cpuset.cpus.effective": "0-3\n",
    })  # fmt: skip
    limits = cgroup.limits(tmp_path)
    assert limits == {"version": 2, "cores": 8, "memory_bytes": 1 << 30, "pids": 1024, "cpus": "0-3"}


def test_limits_of_version_1(tmp_path):
    write(tmp_path, {
        "proc/self/cgroup": "4:memory:/docker/x\n3:cpuset:/\n1:cpu,cpuacct:/docker/x\n",
        "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us": "250000\n",
        "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "536870912\n",
        "sys/fs/cgroup/cpuset/cpuset.cpus": "0-1\n",
    })  # fmt: skip
    limits = cgroup.limits(tmp_path)
    assert limits == {"version": 1, "cores": 2.5, "memory_bytes": 512 << 20, "pids": None, "cpus": "0-1"}


def test_a_pod_and_its_name(tmp_path):
    assert surroundings.kubernetes(tmp_path, {}) is None
    write(tmp_path, {"var/run/secrets/kubernetes.io/serviceaccount/namespace": "training\n"})
    assert surroundings.kubernetes(tmp_path, {"HOSTNAME": "job-0"}) == {
        "pod": "job-0", "namespace": "training", "node": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("files_", "environment", "name"),
    [
        ({"proc/1/cgroup": "0::/kubepods/x\n"}, {}, "kubepods"),
        ({}, {"APPTAINER_NAME": "x.sif"}, "apptainer"),
        (
            {"proc/self/mountinfo": "1 0 0:1 / / rw - overlay o lowerdir=/var/lib/docker/overlay2/l\n"},
            {},
            "docker",
        ),
        ({"proc/self/mountinfo": "1 0 0:1 / / rw - ext4 /dev/sda rw\n"}, {}, None),
    ],
)
def test_containers_by_group_environment_and_layers(tmp_path, files_, environment, name):
    assert surroundings.container(write(tmp_path, files_), environment) == name


def test_the_product_is_the_firmware_s_word(tmp_path):
    write(tmp_path, {"sys/class/dmi/id/sys_vendor": "NVIDIA\n", "sys/class/dmi/id/product_name": "DGXH200\n"})
    assert surroundings.product(tmp_path) == "NVIDIA DGXH200"


def test_an_empty_root_gives_an_inventory_all_the_same(tmp_path):
    read = survey.read_host(tmp_path)
    assert read["numa"] == read["disks"] == read["rdma"] == read["filesystems"] == []
    assert json.loads(json.dumps(read)) == read


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"9" * 5000, b"nonsense\n" * 50, b"-1", b"1 2 3"])
def test_odd_files_do_not_raise(tmp_path, content):
    odd = ["proc/cpuinfo", "proc/meminfo", "proc/self/cgroup", "proc/self/mountinfo", "proc/1/cgroup"]
    odd += [
        "sys/fs/cgroup/cpu.max",
        "sys/fs/cgroup/memory.max",
        "sys/devices/system/cpu/cpu0/cache/index0/size",
    ]
    odd += [
        "sys/devices/system/node/node0/distance",
        "sys/block/sda/size",
        "sys/class/net/e/speed",
        "etc/os-release",
    ]
    odd += ["sys/devices/system/cpu/smt/active", "sys/class/infiniband/m/ports/1/rate"]
    for name in odd:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    json.dumps(survey.read_host(tmp_path))


@given(st.lists(st.integers(0, 500), unique=True))
def test_ranges_are_read_as_the_kernel_writes_them(numbers):
    assert files.parse_list(",".join(map(str, numbers))) == set(numbers)


def test_ranges():
    assert files.parse_list("0-2,8\n") == {0, 1, 2, 8}
    assert files.parse_list("") == files.parse_list("x-") == files.parse_list("-3") == set()


def test_torch_is_read_and_not_run(tmp_path):
    (tmp_path / "version.py").write_text(
        "from typing import Optional\n__all__ = ['cuda']\n__version__ = '2.11.0+cu130'\n"
        "debug = False\ncuda: Optional[str] = '13.0'\nraise SystemExit\n"
    )
    assert libraries.torch_version(tmp_path) == {"torch": "2.11.0+cu130", "cuda": "13.0"}
    (tmp_path / "version.py").write_text("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n")
    assert libraries.torch_version(tmp_path) == {"torch": "2.13.0+cpu"}


def test_libraries_of_the_system(tmp_path):
    folder = "usr/lib/x86_64-linux-gnu"
    names = ("libnccl.so", "libnccl.so.2", "libnccl.so.2.9.6", "libnccl.so.2.28.3", "libcudnn.so.9.13.0")
    write(tmp_path, {f"{folder}/{name}": "" for name in names})
    assert libraries.shared_object(tmp_path, "libnccl.so") == "2.28.3"
    assert libraries.shared_object(tmp_path, "libcudnn.so") == "9.13.0"
    assert libraries.shared_object(tmp_path, "libcufile.so") is None


def test_the_toolkit_by_its_header(tmp_path):
    header = "#define CUDA_VERSION 12040\n"
    write(
        tmp_path,
        {"usr/local/cuda/include/cuda.h": "#define CUDA_VERSION 13000\n", "mine/include/cuda.h": header},
    )
    assert libraries.toolkit(tmp_path, {"PATH": ""}) == "13.0"
    assert libraries.toolkit(tmp_path, {"PATH": "", "CUDA_HOME": str(tmp_path / "mine")}) == "12.4"
    assert libraries.toolkit(tmp_path / "none", {"PATH": ""}) is None
