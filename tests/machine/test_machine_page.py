"""The output of `fathom machine`: everything known, in 40 to 120 columns, and one JSON object."""

from __future__ import annotations

import json
import subprocess
import sys
from io import BytesIO, StringIO, TextIOWrapper
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.text import Text

from fathom.machine import Ceiling, Missing, ceilings, fingerprint, gpus, inventory, pci, store
from fathom.machine.survey import described, with_datasheet
from fathom.report.machine import print_ceilings, print_machine
from fathom.report.machine.words import spans
from tests.machine.test_machine_compare import recorded
from tests.support.machine_fakes import FakeNvml, bus, gpu, meshed, no_cuda
from tests.support.running import environment, run_fathom

HOST = {
    "hostname": "node17",
    "product": "NVIDIA DGXH200",
    "os": "Ubuntu 24.04.3 LTS",
    "kernel": "6.8.0-60-generic",
    "container": "docker",
    "virtual_machine": None,
    "cpu": {"model": "Intel(R) Xeon(R) Platinum 8480C", "architecture": "x86_64", "logical_cores": 224,
            "usable_cores": 112, "numa_nodes": 2, "sockets": 2, "physical_cores": 112,
            "clock_max_mhz": 3800.0, "features": ["avx2", "avx512f", "amx_bf16"], "caches": [
                {"name": "L1d", "size_bytes": 49152, "shared_by": 2},
                {"name": "L3", "size_bytes": 110100480, "shared_by": 112}]},
    "memory_bytes": 2 << 40,
    "numa": [{"node": n, "cpus": f"{n * 56}-{n * 56 + 55}", "memory_bytes": 1 << 40,
              "distances": [[10, 21], [21, 10]][n]} for n in (0, 1)],
    "disks": [{"name": "nvme0n1", "kind": "NVMe", "model": "SAMSUNG MZWLO3T8", "size_bytes": 3840755982336}],
    "filesystems": [{"path": "/data", "mount": "/data", "type": "xfs", "source": "x", "disk": "nvme0n1"}],
    "network": [{"name": "eth0", "state": "up", "speed_mbps": 100000, "driver": "mlx5_core", "numa_node": 0}],
    "rdma": [{"name": "mlx5_0", "driver": "mlx5_core", "pci_bus": "0000:41:00.0", "numa_node": 1,
              "ports": [{"port": "1", "state": "ACTIVE", "rate_gbps": 400.0, "link_layer": "InfiniBand"}]}],
    "limits": {"version": 2, "cores": 16.0, "memory_bytes": 1 << 36, "pids": 1024, "shm_bytes": 64 << 20},
    "kubernetes": {"pod": "train-0", "namespace": "ml", "node": "n17"},
}  # fmt: skip
LIBRARIES = {"torch": "2.11.0+cu130", "cuda": "13.0", "cudnn": "9.13.0", "nccl": "2.28.3", "triton": "3.6.0"}


def dgx(tmp_path) -> dict:
    """Eight H200 behind switches, as a fake driver reports them."""
    nvml = FakeNvml(*({**meshed(i, [-1] * 18), "MaxClockInfo": lambda kind: 1980} for i in range(8)))
    by_name = {pci.address(bus(i)): {"multiprocessors": 132, "l2_bytes": 62914560} for i in range(8)}
    machine = inventory(
        lambda: gpus.read(lambda: nvml, lambda: by_name, tmp_path),
        lambda: json.loads(json.dumps(HOST)),
        lambda: LIBRARIES,
    )
    for item in machine["gpus"]:
        item["numa_node"] = item["index"] // 4
    return machine


def ceiling(name, value, unit="B/s", device=0, **more):
    return Ceiling(
        id=name, value=value, unit=unit, low=value * 0.99, high=value * 1.01, samples=9, device=device, **more
    )


MEASURED = [
    ceiling("hbm.read", 4.421e12),
    ceiling("hbm.read", 4.40e12, device=1),
    ceiling("matmul.bf16", 783e12, "FLOP/s"),
    ceiling("latency.launch", 2.1e-6, "s"),
    ceiling("host.copy", 300e9, device=None, flags=["4 of 112 cores were busy"]),
]


def page(machine, measured=(), missing=(), width=100, printer=print_machine):
    out = StringIO()
    printer(machine, measured, missing, Console(file=out, width=width, force_terminal=True, no_color=True))
    return Text.from_ansi(out.getvalue()).plain


def test_eight_alike_gpus_share_their_lines(tmp_path):
    text = page(dgx(tmp_path))
    assert text.count("NVIDIA H200") == 1
    for words in (
        "8 × NVIDIA H200",
        "Hopper 9.0 · 132 SMs · 140 GiB · L2 60 MiB",
        "power limit 700 W (200 to 700)",
        "PCIe 5.0 ×16 · NVLink 4.0 ×18 · ECC on · MIG off · persistence on",
    ):
        assert words in text
    row = next(line.split() for line in text.splitlines() if line.split()[:1] == ["GPU3"])
    assert row == ["GPU3", "NV18", "NV18", "NV18", "X", "NV18", "NV18", "NV18", "NV18"]


def test_one_page_shows_the_rest(tmp_path):
    text = page(dgx(tmp_path), width=120)
    for words in (
        "node17",
        "NVIDIA DGXH200 · Ubuntu 24.04.3 LTS · kernel 6.8.0-60-generic · docker",
        "2 sockets · 112 cores · 224 threads · 112 of them usable · 3.80 GHz · AMX, AVX-512, bf16",
        "L3 105 MiB by 112",
        "node 1: cpus 56-111 · 1 TiB · distances 21 10 · GPU4 GPU5 GPU6 GPU7 mlx5_0",
        "nvme0n1     NVMe      3.84 TB  SAMSUNG MZWLO3T8",
        "/data is xfs on nvme0n1",
        "100 Gb/s · up · mlx5_core",
        "InfiniBand · 400 Gb/s · ACTIVE",
        "cuDNN 9.13.0 · NCCL 2.28.3 ·",
        "16 cores · 64 GiB of memory · 1024 processes · /dev/shm 64 MiB",
        "train-0 · namespace ml · node n17",
        "`fathom machine measure` measures them",
    ):
        assert words in text, words


def test_a_different_gpu_has_separate_lines(tmp_path):
    nvml = FakeNvml(gpu(0), gpu(1, EnforcedPowerLimit=500_000), gpu(2))
    machine = inventory(lambda: gpus.read(lambda: nvml, no_cuda, tmp_path), lambda: HOST, dict)
    text = page(machine)
    assert "2 × NVIDIA H200   GPU 0, 2" in text and "NVIDIA H200   GPU 1" in text
    assert "not read  ClockInfo, MaxClockInfo: Not Supported" in text


def test_slices_of_a_gpu_are_listed(tmp_path):
    part = {"Name": "NVIDIA H200 MIG 3g.71gb", "MemoryInfo": SimpleNamespace(total=71 << 30)}
    split = gpu(0, MigMode=[1, 1], MaxMigDeviceCount=1, MigDeviceHandleByIndex=lambda i: part)
    machine = inventory(lambda: gpus.read(lambda: FakeNvml(split), no_cuda, tmp_path), lambda: HOST, dict)
    assert "NVIDIA H200 MIG 3g.71gb · 71 GiB" in page(machine)


def test_a_machine_of_an_older_sounding_is_printed_too():
    text = page(recorded())
    assert "NVIDIA H200" in text and "Intel(R) Xeon(R) Processor" in text


def test_without_a_gpu_the_page_says_why(tmp_path):
    machine = inventory(lambda: gpus.read(lambda: FakeNvml(), no_cuda, tmp_path), lambda: HOST, dict)
    assert "none: the driver lists no GPU" in page(machine)


@pytest.mark.parametrize("width", [40, 80, 97, 120, 300])
def test_every_line_fits(tmp_path, width):
    lines = page(dgx(tmp_path), MEASURED, [Missing(id="hbm.copy", why="busy")], width=width).splitlines()
    assert max(map(len, lines)) <= min(max(width, 80), 120)


def test_plain_terminals_get_ascii(tmp_path):
    raw = BytesIO()
    console = Console(file=TextIOWrapper(raw, encoding="ascii"), width=100)
    print_machine(dgx(tmp_path), MEASURED, [], console)
    console.file.flush()
    assert b"8 x NVIDIA H200" in raw.getvalue()


def test_ceilings_stand_beside_the_datasheet(tmp_path):
    missing = [
        Missing(id="disk.read.gds", why="kvikio is not installed"),
        Missing(id="matmul.fp4", why="no such unit"),
    ]
    text = page({**dgx(tmp_path), "measured_ns": 1795256661525694969}, MEASURED, missing)
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    assert rows["hbm.read"][1:8] == ["4.42", "TB/s", "±1.0", "%", "4.80", "TB/s", "92"]
    assert rows["matmul.bf16"][1:3] == ["783", "TFLOP/s"] and rows["matmul.bf16"][5:8] == [
        "990",
        "TFLOP/s",
        "79",
    ]
    assert rows["latency.launch"][1:3] == ["2.10", "µs"] and len(rows["latency.launch"]) == 5
    for words in (
        "measured 2026-11-21",
        "host.copy: 4 of 112 cores were busy",
        "1 more GPU: within 0.5 % of GPU 0",
        "disk.read.gds: kvikio is not installed; matmul.fp4: no such unit",
    ):
        assert words in text, words


def test_a_gpu_far_from_the_first_is_named(tmp_path):
    text = page(dgx(tmp_path), [*MEASURED, ceiling("hbm.read", 3.0e12, device=5)], printer=print_ceilings)
    assert "farthest is hbm.read on GPU 5, 3.00 TB/s" in " ".join(text.split())


def test_spans():
    assert spans([3, 0, 1, 7]) == "0–1, 3, 7" and spans([]) == ""


def test_stored_ceilings_come_with_the_inventory(tmp_path, monkeypatch):
    monkeypatch.setenv("FATHOM_HOME", str(tmp_path))
    machine = dgx(tmp_path)
    assert "ceilings" not in described(machine=machine)
    store.remember({**machine, "ceilings": ceilings.to_records(MEASURED), "measured_ns": 5})
    result = described(machine=machine)
    assert ceilings.from_machine(result) == MEASURED and ceilings.missing_from(result) == []
    assert result["measured_ns"] == 5
    first, *_ = with_datasheet(result)["ceilings"]
    assert first["datasheet"]["value"] == 4.8e12 and first["datasheet"]["fraction"] == pytest.approx(
        0.921, abs=1e-3
    )
    assert ceilings.from_machine(with_datasheet(result)) == MEASURED


@pytest.mark.parametrize(
    "damage", [b"{", b'{"fingerprint": "x", "ceilings": 3}', b'{"fingerprint": 1, "missing": [{}]}']
)
def test_damaged_memory_does_not_hide_the_machine(tmp_path, monkeypatch, damage):
    monkeypatch.setenv("FATHOM_HOME", str(tmp_path))
    machine = dgx(tmp_path)
    place = store.place(machine["fingerprint"])
    place.parent.mkdir()
    place.write_bytes(damage)
    result = described(machine=machine)
    assert "ceilings" not in result and result["abstained"][0]["what"] == "ceilings"
    text = " ".join(page(result).split())
    assert "ceilings: " in text and "No ceilings are remembered" not in text


def test_the_fingerprint_of_the_recorded_machine_still_holds(tmp_path):
    machine = recorded()
    assert fingerprint(machine) == machine["fingerprint"]
    eight = dgx(tmp_path)
    eight["gpus"].reverse()
    assert fingerprint(eight) == eight["fingerprint"]
    for item in eight["gpus"]:
        item |= {"index": 7 - item["index"], "pci_bus": "elsewhere", "l2_bytes": 1, "numa_node": None}
    assert fingerprint(eight) == eight["fingerprint"]


def test_the_command_prints_one_object_here(tmp_path):
    done = run_fathom("machine", "--json", "--data", tmp_path, cwd=tmp_path, FATHOM_HOME=str(tmp_path))
    assert done.returncode == 0 and done.stderr == ""
    machine = json.loads(done.stdout)
    assert machine["fingerprint"] == fingerprint(machine)
    assert machine["host"]["cpu"]["logical_cores"] >= 1 and isinstance(machine["gpus"], list)
    assert bool(machine["gpus"]) != bool(machine["why_no_gpu"])
    assert machine["host"]["filesystems"][-1]["path"] == str(tmp_path.resolve())


def test_the_command_prints_a_page_here(tmp_path):
    done = run_fathom("machine", cwd=tmp_path, FATHOM_HOME=str(tmp_path))
    assert done.returncode == 0 and "fathom machine measure" in done.stdout and "cpu" in done.stdout


def test_no_torch_and_no_table_library_is_needed_to_look(tmp_path):
    heavy = "import sys; from fathom.machine import inventory; inventory();"
    heavy += "print([m for m in ('torch', 'polars', 'msgspec', 'yaml', 'numpy') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", heavy], capture_output=True, text=True, env=environment(), cwd=tmp_path
    )
    assert done.stdout.strip() == "[]"


def test_a_missing_folder_is_refused(tmp_path):
    done = run_fathom("machine", "--data", tmp_path / "none", cwd=tmp_path)
    assert done.returncode == 2 and "none" in done.stderr and "Traceback" not in done.stderr


def test_links_are_shown_pair_by_pair_and_size_by_size():
    pairs = [{"from": i, "to": 1 - i, "both_ways": both, "value": v}
             for i in (0, 1) for both, v in ((False, 369e9 + i * 1e9), (True, 700e9))]  # fmt: skip
    sizes = [{"bytes": 2**k, "value": 2.0**k * 1e5, "seconds": 1e-5} for k in range(10, 31, 2)]
    measured = [
        Ceiling(id="link.peer", value=370e9, unit="B/s", low=1e9, high=1e9, samples=3, series=pairs),
        Ceiling(id="collective.all_reduce", value=1e9, unit="B/s", low=1, high=1, samples=3, series=sizes),
    ]
    console = Console(record=True, width=100, file=StringIO())
    print_ceilings({"gpus": [], "host": {}}, measured, [], console)
    lines = console.export_text().splitlines()
    (first,) = [line for line in lines if "from GPU 0" in line]
    assert first.split()[-2:] == ["·", "369"]
    assert any("all reduce" in line for line in lines) and any("10.0 µs" in line for line in lines)
    assert max(map(len, lines)) <= 100
