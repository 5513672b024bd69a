"""Why counters cannot be sampled: each obstacle has its reason and its fix, and the recording is kept."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from fathom.errors import BadInputError
from fathom.machine.nvml import NvmlMissingError
from fathom.probe.counters import budget, cupti, explain, why_not
from fathom.probe.counters.reasons import numbers
from fathom.recorder.counters import to_sample
from fathom.recorder.plan import Plan


class CuptiError(Exception):
    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"cupti error {status}")


RESULTS = {35: "ERROR_INSUFFICIENT_PRIVILEGES", 39: "ERROR_HARDWARE_BUSY", 27: "ERROR_NOT_SUPPORTED"}
RESULTS |= {41: "ERROR_MIG_DEVICE_NOT_SUPPORTED", 42: "ERROR_PARAMETER_SIZE_NOT_SUFFICIENT"}
RESULTS |= {43: "ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", 44: "ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED"}


class FunctionNotFoundError(RuntimeError):
    pass


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError("Insufficient privileges for PM sampling"), "NVreg_RestrictProfilingToAdminUsers=0"),
        (CuptiError(35), "CAP_SYS_ADMIN"),
        (CuptiError(41), "MIG"),
        (CuptiError(39), "another profiler"),
        (CuptiError(43), "another profiler"),
        (RuntimeError("PM sampling is already enabled on this device."), "another profiler"),
        (CuptiError(42), "too old"),
        (FunctionNotFoundError("function cuptiPmSamplingEnable is not found"), "too old"),
        (RuntimeError("CUPTI could not load the nvperf* libraries"), "LD_LIBRARY_PATH"),
        (CuptiError(44), "hypervisor"),
        (CuptiError(27), "does not support PM sampling"),
        (ImportError("libcupti.so.13"), "pip install"),
        (
            ValueError("Requested PM sampling configuration is not supported."),
            "machine measure --only counters",
        ),
        (KeyError("odd"), "KeyError"),
        (CuptiError(99), "sampling failed"),
    ],
)
def test_every_failure_has_words(monkeypatch: pytest.MonkeyPatch, error: Exception, words: str) -> None:
    def result(status: int) -> SimpleNamespace:
        return SimpleNamespace(name=RESULTS[status]) if status in RESULTS else _no(status)

    monkeypatch.setitem(sys.modules, "cupti.cupti", SimpleNamespace(Result=result))  # type: ignore[arg-type]
    assert words in explain(error)


def _no(status: int) -> SimpleNamespace:
    raise ValueError(status)


@pytest.mark.parametrize(
    ("cuda", "version", "words"),
    [
        (None, "13.4.0", "without CUDA"),
        ("12.8", "13.4.0", "CUDA 12.8"),  # cupti-python for CUDA 12 (12.6, 12.8) has no PM sampling
        ("11.8", None, "CUDA 11.8"),
        ("13.0", None, "pip install --no-deps cupti-python"),
        ("13.0", "12.8.0", "cupti-python 12.8.0 has no PM sampling"),
        ("13.0", "13.2.0", "cupti-python 13.2.0 has no PM sampling"),
    ],
)
def test_software_without_pm_sampling_is_reported_before_trying(cuda, version, words) -> None:
    assert words in (why_not(cuda, version) or "")


@pytest.mark.parametrize("version", ["13.3.0", "13.4.0", "13.10", "14.0.0rc1"])
def test_stacks_that_have_it_are_tried(version: str) -> None:
    assert why_not("13.0", version) is None


def test_versions_are_compared_as_numbers() -> None:
    assert numbers("13.10.1") == (13, 10) and numbers("14.dev0") == (14,) and numbers("x") == ()


# from the parent to the probe

KNOWN = {"groups": [["a"]], "refused": {}, "interval_ns": 20_000, "trigger": "time", "driver": "580"}


def machine(**more: object) -> dict:
    gpu = {"index": 0, "uuid": "GPU-1", "mig": False}
    return {"gpus": [gpu], "why_no_gpu": None, "versions": {"driver": "580"}, "counters": KNOWN, **more}


def nvml(*pids: int) -> SimpleNamespace:
    running = [SimpleNamespace(pid=pid) for pid in pids]
    return SimpleNamespace(
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: running,
    )


def no_nvml() -> None:
    raise NvmlMissingError("none")


def test_remembered_counters_are_sampled() -> None:
    by_name = {name: KNOWN[name] for name in ("groups", "interval_ns", "trigger")}
    assert to_sample(machine(), {}, nvml) == (by_name, None)
    assert to_sample(machine(), {}, no_nvml) == (by_name, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("here", "pids", "words"),
    [
        (machine(gpus=[], why_no_gpu="no driver"), (), "no GPU (no driver)"),
        (machine(counters=None), (), "machine measure --only counters"),
        (machine(counters=None, why_no_counters="it broke"), (), "it broke"),
        (machine(versions={"driver": "590"}), (), "machine measure --only counters"),
        (machine(), (4711,), "process 4711 also uses the GPU"),
    ],
)
def test_reasons_against_counters_are_recorded(here: dict, pids: tuple[int, ...], words: str) -> None:
    counters, why = to_sample(here, {}, lambda: nvml(*pids))
    assert counters is None and why is not None and words in why
    for depth, expected in (("auto", 1), ("counters", 1), ("timeline", 0), ("surface", 0)):
        plan = Plan(depth).meeting(counters, why)
        assert len(plan.abstained) == expected and plan.counters is None


def test_the_number_of_samples_is_planned_with_the_counters() -> None:
    record = {"groups": [["a"]]}
    assert Plan("counters", counter_samples=9).meeting(record, None).counters == record | {"samples": 9}
    assert Plan("counters").meeting(record, None).counters == record
    assert Plan("timeline", counter_samples=9).meeting(record, None).counters is None
    assert Plan("auto", counter_samples=9).meeting(None, "the reason").counters is None
    with pytest.raises(BadInputError, match="counter-samples"):
        Plan(counter_samples=0)


# the collector, over a stand-in for cupti-python


class Sampled:
    num_populated_samples, num_completed_samples = 3, 2

    def __getitem__(self, which: slice) -> list[SimpleNamespace]:
        return [SimpleNamespace(start_timestamp=n, end_timestamp=n + 1, metric_values=[n]) for n in (1, 2)][
            which
        ]


class Api:
    TriggerMode = SimpleNamespace(GPU_TIME_INTERVAL="ns", GPU_SYSCLK_INTERVAL="cycles")

    class Collector:
        def __init__(self, device_index: int) -> None:
            self.configured: dict = {}
            self.decoded = [Sampled(), MemoryError("Record overflow in the hardware buffer.")]
            self.at_once: list[int] = []

        def configure(self, **options: object) -> None:
            self.configured = options

        def decode(self, max_samples: int) -> Sampled:
            self.at_once.append(max_samples)
            result = self.decoded.pop(0)
            if isinstance(result, MemoryError):
                raise result
            return result


def test_images_stay_small_and_overflows_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti.pm_sampling", Api)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "cupti", SimpleNamespace(pm_sampling=Api))  # type: ignore[arg-type]
    collector = cupti.CuptiCollector(0)
    collector.configure(["a"] * 99, 20_000, "clock")
    assert collector._collector.configured["trigger_mode"] == "cycles"
    assert collector._collector.configured["sampling_interval"] == 20_000
    [chunk] = collector.chunks()
    assert (chunk.populated, chunk.starts, chunk.ends, chunk.values) == (3, [1, 2], [2, 3], [[1], [2]])
    with pytest.raises(cupti.OverflowedError):
        list(collector.chunks())
    assert collector._collector.at_once[0] * 168_500 <= 640 << 20
    assert 250 <= budget.samples(1000) <= budget.samples(99) <= budget.samples(4) <= 8_000
