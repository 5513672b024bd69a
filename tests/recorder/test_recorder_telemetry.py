"""Telemetry: exact on a clock and sensors of the test's own."""

import itertools
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from fathom.recorder import sensors
from fathom.recorder.sensors import GpuSensors, HostSensors, Rapl
from fathom.recorder.telemetry import Telemetry
from fathom.recorder.tree import ProcessTree


class Clock:
    """Nanoseconds that move only when somebody waits."""

    def __init__(self, ticks):
        self.now, self.ticks, self.paused = 1_000_000_000, ticks, []

    def __call__(self):
        return self.now

    def pause(self, seconds):
        self.paused.append(seconds)
        self.now += round(seconds * 1e9)
        self.ticks -= 1
        return self.ticks < 0


class Counter:
    """Costs the clock `cost_ns` a reading."""

    def __init__(self, clock, cost_ns=0):
        self.clock, self.cost_ns, self.energy = clock, cost_ns, 0.0

    def read(self):
        self.clock.now += self.cost_ns
        self.energy += 2.5
        return {"device": 0, "energy_j": self.energy}


def rows(folder):
    return [json.loads(line) for line in (folder / "telemetry.jsonl").read_text().splitlines()]


def test_samples_keep_their_period_whatever_a_reading_costs(tmp_path):
    clock = Clock(ticks=3)
    Telemetry(tmp_path, [Counter(clock, cost_ns=30_000_000)], clock=clock, pause=clock.pause).run()
    assert clock.paused == pytest.approx([0.07] * 4)
    times = [row["time_ns"] for row in rows(tmp_path)]
    assert [b - a for a, b in itertools.pairwise(times)] == [100_000_000] * 4


def test_a_last_sample_follows_the_end(tmp_path):
    clock = Clock(ticks=0)
    Telemetry(tmp_path, [Counter(clock)], clock=clock, pause=clock.pause).run()
    assert [row["energy_j"] for row in rows(tmp_path)] == [2.5, 5.0]


def test_sparse_readings_of_a_day_are_few(tmp_path):
    clock = Clock(ticks=10**6)
    until = clock() + 24 * 3600 * 10**9

    def pause(seconds):
        clock.pause(seconds)
        return clock() >= until

    Telemetry(tmp_path, [Counter(clock)], sparse=True, clock=clock, pause=pause).run()
    times = [row["time_ns"] for row in rows(tmp_path)]
    assert len(times) < 25_000 and times[-1] >= until
    assert times[100] - times[99] == 100_000_000


def test_new_processes_are_looked_for_each_second_then_each_hundredth_of_the_time(monkeypatch):
    now, looks = [0.0], []
    monkeypatch.setattr(sensors, "time", SimpleNamespace(monotonic=lambda: now[0]))
    tree = ProcessTree(os.getpid())
    host = HostSensors(tree, Rapl(Path("/nowhere")))
    monkeypatch.setattr(tree, "refresh", lambda: looks.append(now[0]))
    for second in (0.5, 1.0, 1.9, 2.0, 500.0, 504.0, 506.0, 5000.0, 5009.0, 5011.0):
        now[0] = second
        host.read()
    assert looks == [1.0, 2.0, 500.0, 506.0, 5000.0, 5011.0]


def test_a_full_disk_ends_telemetry_and_not_the_program():
    telemetry = Telemetry(Path("/dev"), [Counter(Clock(0))])
    telemetry.path = Path("/dev/full")
    telemetry.run()
    assert "No space left" in telemetry.fault


def test_rows_fit_the_table():
    schema = pytest.importorskip("fathom.sounding.schema")
    row = HostSensors(ProcessTree(os.getpid()), Rapl(Path("/nowhere"))).read()
    assert row.keys() <= schema.TELEMETRY.keys()


class Nvml:
    """A driver with two fields that this GPU does not support."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU, NVML_SUCCESS = 1, 2, 0, 0
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX = 139, 138

    def __init__(self, links=True):
        self.links, self.asked = links, []

    def nvmlDeviceGetPowerUsage(self, handle):  # noqa: N802
        return 512_345

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):  # noqa: N802
        return 7_500

    def nvmlDeviceGetClockInfo(self, handle, which):  # noqa: N802
        return {1: 1980, 2: 3201}[which]

    def nvmlDeviceGetTemperature(self, handle, which):  # noqa: N802
        raise RuntimeError("Not Supported")

    def nvmlDeviceGetUtilizationRates(self, handle):  # noqa: N802
        return SimpleNamespace(gpu=97)

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        return SimpleNamespace(used=4 << 30)

    def nvmlDeviceGetFieldValues(self, handle, fields):  # noqa: N802
        status = 0 if self.links else 3
        sizes = {139: 10, 138: 20}
        return [SimpleNamespace(nvmlReturn=status, value=SimpleNamespace(ullVal=sizes[f])) for f, _ in fields]


def test_a_gpus_row_has_the_tables_units_and_omits_missing_sensors():
    assert GpuSensors(Nvml(), "handle", 3).read() == {
        "device": 3,
        "power_w": 512.345,
        "energy_j": 7.5,
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 3201,
        "busy_percent": 97.0,
        "memory_bytes": 4 << 30,
        "link_rx_bytes": 10 * 1024,
        "link_tx_bytes": 20 * 1024,
    }


def test_no_links_no_link_bytes():
    assert "link_rx_bytes" not in GpuSensors(Nvml(links=False), "handle", 0).read()


def zone(root, name, energy, wrap=1000):
    folder = root / name
    folder.mkdir()
    (folder / "energy_uj").write_text(str(energy))
    (folder / "max_energy_range_uj").write_text(str(wrap))
    return folder / "energy_uj"


def test_rapl_adds_packages_once_and_survives_the_wrap(tmp_path):
    first, second = zone(tmp_path, "intel-rapl:0", 900), zone(tmp_path, "intel-rapl:1", 50)
    zone(tmp_path, "intel-rapl:0:0", 700)  # the cores, which package 0 holds already
    rapl = Rapl(tmp_path)
    assert rapl.joules() == pytest.approx(950e-6)
    first.write_text("100")  # wrapped at 1000
    second.write_text("60")
    assert rapl.joules() == pytest.approx(1160e-6)
    assert rapl.joules() == pytest.approx(1160e-6)
    first.unlink()
    assert rapl.joules() is None


def test_the_host_reports_the_programs_memory(tmp_path):
    row = HostSensors(ProcessTree(os.getpid()), Rapl(tmp_path)).read()
    assert row["device"] == -1 and row["energy_j"] is None
    assert row["memory_bytes"] > 1 << 20


def test_without_a_driver_there_is_a_host_and_a_reason(monkeypatch):
    def absent():
        raise sensors.NvmlMissingError("no driver")

    monkeypatch.setattr(sensors, "load", absent)
    result, why = sensors.all_sensors(os.getpid(), {})
    assert [type(sensor) for sensor in result] == [HostSensors] and why == "no driver"


def test_a_driver_that_fails_midway_costs_only_the_gpus(monkeypatch):
    class Lost:
        def nvmlDeviceGetCount(self):  # noqa: N802
            raise RuntimeError("GPU is lost")

    monkeypatch.setattr(sensors, "load", Lost)
    result, why = sensors.all_sensors(os.getpid(), {})
    assert [type(sensor) for sensor in result] == [HostSensors] and "GPU is lost" in why
