"""Gauges: processes that die, hang or lie lose one gauge and no more; plans; what is kept."""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace

import pytest

from fathom.errors import BadInputError
from fathom.gauges import QUICK, keep, measure, parent, plan, quick_missing, seconds
from fathom.gauges.child import Child
from fathom.gauges.conditions import ConditionSensors, Watch, summary
from fathom.gauges.contention import SHARED, BusyGpuError, processes, refuse_busy, traces
from fathom.gauges.keeping import merge
from fathom.gauges.planning import MeasurementPlan, batches, choose
from fathom.machine import Ceiling, MachineFileError, Missing, stored_machine
from fathom.machine.nvml import NvmlMissingError
from tests.support.paths import ROOT

HBM = ("hbm.read", "hbm.write", "hbm.copy", "hbm.triad")


def gpu(index: int, **more: object) -> dict[str, object]:
    return {"index": index, "uuid": f"GPU-{index}{index}", "name": "H200", "mig": None, **more}


MACHINE = {"fingerprint": "ab12", "host": {}, "gpus": [gpu(0), gpu(1)], "why_no_gpu": None}
BARE = {"fingerprint": "cd34", "host": {}, "gpus": [], "why_no_gpu": "no driver"}


class FakeNvml:
    """A driver with so many GPUs, and a process list for each."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, count: int = 2, running: dict[int, list[int]] | None = None, reasons: int = 0) -> None:
        self.count, self.running, self.reasons = count, running or {}, reasons

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetIndex(self, handle: int) -> int:  # noqa: N802
        return handle

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return f"GPU-{handle}{handle}"

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[object]:  # noqa: N802
        return [SimpleNamespace(pid=pid) for pid in self.running.get(handle, [])]

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:  # noqa: N802
        return 1980 if kind == self.NVML_CLOCK_SM else 3201

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        return 690_000

    def nvmlDeviceGetTemperature(self, handle: int, kind: int) -> int:  # noqa: N802
        raise RuntimeError("not supported")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:  # noqa: N802
        return self.reasons


def no_nvml() -> None:
    raise NvmlMissingError("no driver")


def run(script: str, ids: tuple[str, ...] = HBM, **more: object) -> tuple[list[Ceiling], list[Missing]]:
    """Measure with the stand-in for the measuring process."""

    def start(job: str, environment: dict[str, str]) -> Child:
        return Child(
            job, {**environment, "SCRIPT": script, "PYTHONPATH": str(ROOT)}, "tests.support.gauges_program"
        )

    measurement_plan = MeasurementPlan(MACHINE, ids, devices=(0,), linked=(0,), force=True, **more)
    return measure(measurement_plan, start=start)


def ids(ceilings: list[Ceiling] | list[Missing]) -> list[str]:
    return [item.id for item in ceilings]


def test_measurements_belong_to_the_process_device():
    ceilings, missing = run("hbm.write=missing,hbm.copy=chatter")
    assert ids(ceilings) == ["hbm.read", "hbm.copy", "hbm.triad"]
    assert {item.device for item in ceilings} == {0}
    assert missing == [Missing(id="hbm.write", why="the chip has none", device=0)]


@pytest.mark.parametrize(
    ("deed", "why"), [("abort", "SIGABRT"), ("exit", "status 3: CUDA error"), ("half", "status 1")]
)
def test_a_death_loses_one_gauge_and_says_how(deed, why):
    ceilings, missing = run(f"hbm.write={deed}")
    assert ids(ceilings) == ["hbm.read", "hbm.copy", "hbm.triad"]
    assert ids(missing) == ["hbm.write"]
    assert why in missing[0].why


def test_a_process_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(parent, "PATIENCE_S", 1.0)
    monkeypatch.setattr(parent, "PATIENCE_FACTOR", 0)
    ceilings, missing = run("hbm.read=hang")
    assert ids(ceilings) == list(HBM[1:])
    assert "took longer than 1 s" in missing[0].why


def test_a_process_that_dies_every_time_is_given_up():
    ids_ = ("hbm.read", "hbm.write", "hbm.copy", "hbm.triad", "l2.read", "shared.read")
    ceilings, missing = run(",".join(f"{name}=exit" for name in ids_), ids_)
    assert ceilings == []
    assert ids(missing) == list(ids_)
    assert "repeatedly" in missing[-1].why


@pytest.mark.parametrize("deed", ["nan", "stranger"])
def test_invalid_numbers_are_not_ceilings(deed):
    ceilings, missing = run(f"hbm.read={deed}")
    assert ids(ceilings) == list(HBM[1:])
    assert "no usable number" in missing[0].why


def test_a_process_that_never_starts_loses_all_and_says_why():
    measurement_plan = MeasurementPlan(MACHINE, HBM[:2], devices=(0,), force=True)
    ceilings, missing = measure(measurement_plan, start=partial(Child, module="tests.no_such_module"))
    assert ceilings == []
    assert ids(missing) == ["hbm.read", "hbm.write"]
    assert "No module named" in missing[0].why


def test_progress_never_falls_and_ends_before_its_total():
    seen = []
    measurement_plan = MeasurementPlan(MACHINE, HBM, devices=(0,), force=True)
    environment = {"SCRIPT": "", "PYTHONPATH": str(ROOT)}
    measure(
        measurement_plan,
        seen.append,
        lambda job, env: Child(job, {**env, **environment}, "tests.support.gauges_program"),
    )
    assert [now.name for now in seen] == list(HBM)
    assert [now.done_s for now in seen] == sorted(now.done_s for now in seen)
    assert all(now.done_s < now.total_s == seconds(measurement_plan) for now in seen)


def test_without_a_gpu_every_gpu_ceiling_says_why():
    ceilings, missing = measure(
        MeasurementPlan(BARE, ("hbm.read", "link.peer"), why_no_gpu="there is no GPU (no driver)")
    )
    assert ceilings == []
    assert {absence.why for absence in missing} == {"there is no GPU (no driver)"}


def test_links_need_two_gpus():
    measurement_plan = MeasurementPlan(MACHINE, ("link.peer",), devices=(0,), linked=(0,), force=True)
    assert batches(measurement_plan) == []
    assert "two GPUs" in measure(measurement_plan)[1][0].why


def test_each_process_sees_its_devices_alone():
    names = ("host.read", "hbm.read", "link.peer")
    result = batches(MeasurementPlan(MACHINE, names, devices=(1, 0), linked=(0, 1)))
    seen = [(batch.job.ids, batch.device, batch.environment["CUDA_VISIBLE_DEVICES"]) for batch in result]
    assert seen == [
        (("host.read",), None, ""),
        (("hbm.read",), 1, "GPU-11"),
        (("hbm.read",), 0, "GPU-00"),
        (("link.peer",), None, "GPU-00,GPU-11"),
    ]


def test_a_slice_keeps_the_environment_that_names_it():
    sliced = {**MACHINE, "gpus": [gpu(0, mig=True)]}
    (batch,) = batches(MeasurementPlan(sliced, ("hbm.read",), devices=(0,)))
    assert batch.environment == {}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["hbm"], HBM),
        (["hbm.re*"], HBM[:1]),
        (["matmul.bf16"], ("matmul.bf16", "matmul.bf16.sustained")),
        (["l2.read,hbm.copy"], ("hbm.copy", "l2.read")),
    ],
)
def test_ceilings_are_chosen_by_id_beginning_or_pattern(words, expected):
    assert choose(words) == expected


@pytest.mark.parametrize("word", ["hb", "HBM.read", "../x"])
def test_an_unknown_ceiling_is_refused(word):
    with pytest.raises(BadInputError, match="begin with"):
        choose([word])


@pytest.mark.parametrize(
    ("asked", "environment", "devices", "linked"),
    [
        (None, {}, (0,), (0, 1)),
        ("all", {}, (0, 1), (0, 1)),
        ("1", {}, (1,), (1,)),
        (None, {"CUDA_VISIBLE_DEVICES": "1"}, (1,), (1,)),
        (None, {"CUDA_VISIBLE_DEVICES": ""}, (), ()),
    ],
)
def test_the_environment_says_which_gpus_there_are(tmp_path, asked, environment, devices, linked):
    result = plan(MACHINE, gpu=asked, data=tmp_path, environment=environment, open_nvml=FakeNvml)
    assert (result.devices, result.linked) == (devices, linked)
    assert result.ids == QUICK


def test_impossible_wishes_are_refused(tmp_path):
    with pytest.raises(BadInputError, match="no GPU 7 to measure"):
        plan(MACHINE, gpu="7", environment={}, open_nvml=FakeNvml)
    with pytest.raises(BadInputError, match="no GPU 0 to measure; visible here: none"):
        plan(BARE, gpu="0", environment={}, open_nvml=no_nvml)
    with pytest.raises(BadInputError, match="not a folder"):
        plan(BARE, data=tmp_path / "none", environment={}, open_nvml=no_nvml)


def test_a_busy_gpu_is_refused_by_name():
    busy = partial(FakeNvml, running={1: [4711]})
    assert processes(0, busy) == [] and processes(1, busy) == [4711]
    refuse_busy([0], busy)
    with pytest.raises(BusyGpuError, match=r"GPU 1 is in use by process 4711.*--force"):
        refuse_busy([0, 1], busy)
    assert processes(0, no_nvml) == []


def test_processes_hidden_by_a_container_leave_traces():
    class Hidden(FakeNvml):
        used, busy = 600 << 20, 0

        def nvmlDeviceGetMemoryInfo(self, handle: int) -> object:  # noqa: N802
            return SimpleNamespace(used=self.used)

        def nvmlDeviceGetUtilizationRates(self, handle: int) -> object:  # noqa: N802
            return SimpleNamespace(gpu=self.busy)

    assert traces(0, Hidden) == []
    Hidden.used, Hidden.busy = 5 << 30, 90
    assert traces(0, Hidden) == [
        "5.0 GiB of its memory were already in use",
        "it was already busy 90 % of the time",
    ]
    assert traces(1, partial(FakeNvml, running={1: [4711]})) == [SHARED]
    assert traces(0, no_nvml) == traces(0, FakeNvml) == []


def test_doubts_about_a_device_flag_its_ceilings(monkeypatch):
    monkeypatch.setattr(parent, "traces", lambda device: [SHARED])
    ceilings, _ = run("")
    assert all(result.flags == [SHARED] for result in ceilings)


def test_conditions_are_those_of_the_block():
    with Watch(ConditionSensors(partial(FakeNvml, reasons=0x4 | 0x40), {})) as watch:
        pass
    assert watch.conditions == {
        "sm_clock_mhz": 1980,
        "sm_clock_min_mhz": 1980,
        "memory_clock_mhz": 3201,
        "power_w": 690,
        "throttle": ["power cap", "hardware thermal slowdown"],
    }
    assert watch.flags == ("the clocks were throttled: hardware thermal slowdown",)


def test_without_sensors_conditions_are_unknown_not_fine():
    for sensors in (ConditionSensors(no_nvml, {}), ConditionSensors(FakeNvml, {"CUDA_VISIBLE_DEVICES": ""})):
        with Watch(sensors, thread=False) as watch:
            pass
        assert watch.conditions == {} and watch.flags == ()


def test_conditions_take_medians_and_the_lowest_clock():
    looks = [{"sm_clock_mhz": clock, "reasons": 0} for clock in (1980, 1200, 1900)]
    result = summary(looks)
    assert (result["sm_clock_mhz"], result["sm_clock_min_mhz"], result["throttle"]) == (1900, 1200, [])


def ceiling(name: str, value: float, device: int | None = 0) -> Ceiling:
    return Ceiling(id=name, value=value, unit="B/s", low=value, high=value, samples=3, device=device)


def test_a_new_measurement_replaces_that_of_the_same_device(tmp_path):
    first = [ceiling("hbm.read", 1.0), ceiling("hbm.read", 2.0, 1), ceiling("host.read", 3.0, None)]
    keep(MACHINE, first, [Missing(id="hbm.copy", why="no memory", device=0)], tmp_path)
    again = [ceiling("hbm.read", 9.0), ceiling("hbm.copy", 5.0)]
    lost = [Missing(id="host.read", why="no torch")]
    kept, place = keep(MACHINE, again, lost, tmp_path)
    values = {(c["id"], c["device"]): c["value"] for c in kept["ceilings"]}
    assert values == {
        ("hbm.read", 0): 9.0,
        ("hbm.read", 1): 2.0,
        ("host.read", None): 3.0,
        ("hbm.copy", 0): 5.0,
    }
    assert kept["missing"] == []
    assert kept["measured_ns"] > 0 and place.parent.parent == tmp_path


@pytest.mark.parametrize(
    "content",
    [{"ceilings": 3}, {"ceilings": [{"id": "hbm.read"}]}, {"missing": [4]}, {"missing": {"a": 1}}],
)
def test_a_damaged_file_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "machines" / "ab12.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"fingerprint": "ab12", **content}))
    before = path.read_bytes()
    with pytest.raises(MachineFileError, match="damaged"):
        keep(MACHINE, [ceiling("hbm.read", 1.0)], [], tmp_path)
    assert path.read_bytes() == before
    assert stored_machine(BARE["fingerprint"], tmp_path) == {}


def test_missing_ceilings_stay_known():
    kept = merge({"missing": [{"id": "l2.read", "why": "old", "device": 0}]}, MACHINE, [], [])
    assert [record["id"] for record in kept["missing"]] == ["l2.read"]
    assert "l2.read" not in quick_missing(kept)


def test_the_quick_ones_that_lack_are_named():
    assert quick_missing(MACHINE) == list(QUICK)
    assert all(name.startswith("host.") for name in quick_missing(BARE))
    measured = merge({}, MACHINE, [ceiling(name, 1.0) for name in QUICK], [])
    assert quick_missing(measured) == []
