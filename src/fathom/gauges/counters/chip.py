"""The GPU under qualification, accessed through cupti-python."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from fathom.gauges.counters.wanted import table
from fathom.probe.counters import CLOCK, TIME, CuptiCollector

TRIES, SECONDS = 3, 0.03
BUFFER_BYTES = 128 << 20
WORK_BYTES = 256 << 20


class NoSamplesError(Exception):
    """The driver delivered no samples at all."""


class CuptiChip:
    """Context manager for the first visible GPU."""

    def __init__(self, interval_ns: int) -> None:
        self._interval = interval_ns
        self._host = import_module("cupti.profiler_host")
        self._work = MemsetLoop()
        self._collector = CuptiCollector(0, BUFFER_BYTES)
        self.trigger, self.name = TIME, ""

    def __enter__(self) -> CuptiChip:
        self._collector.open()
        # Before the profiler is initialised, asking for the name kills the process.
        self.name = chip_name(import_module("cupti.cupti"))
        return self

    def __exit__(self, *_: object) -> None:
        self._collector.close()

    def own(self) -> list[str]:
        """Return the counters of the chip's single-pass sets; [] if libcupti predates them (13.3)."""
        with suppress(Exception):
            sets = self._host.get_single_pass_sets(self.name)
            wanted = [metric_set for metric_set in table()["sets"] if metric_set in sets] or [
                metric_set for metric_set in sets if "Compute" in metric_set
            ]
            return [
                name
                for metric_set in wanted
                for name in self._host.get_metrics_in_single_pass_set(self.name, metric_set)
            ]
        return []

    def passes(self, names: Sequence[str]) -> int:
        host = self._host.ProfilerHost(self.name, self._host.ProfilerType.PM_SAMPLING)
        host.initialize()
        try:
            return self._host.get_num_of_passes(host.create_config_image(list(names)))
        except Exception:  # ValueError for an unknown name, cuptiError for an impossible schedule
            return 0 if len(names) == 1 else 2
        finally:
            host.deinitialize()

    def settle_trigger(self, names: Sequence[str]) -> None:
        """Count intervals in cycles if the chip cannot count them in time (as GA100 and Turing)."""
        for name in names:
            for trigger in (TIME, CLOCK):
                with suppress(ValueError):
                    self._collector.configure([name], self._interval, trigger)
                    self.trigger = trigger
                    return

    def completes(self, names: Sequence[str]) -> bool:
        try:
            self._collector.configure(names, self._interval, self.trigger)
        except ValueError:
            return False
        for _ in range(TRIES):
            populated, completed = self._sample()
            if populated:
                return 2 * completed >= populated
        raise NoSamplesError("the driver delivered no samples")

    def _sample(self) -> tuple[int, int]:
        self._collector.start()
        self._work.go_on(SECONDS)
        self._collector.stop()
        chunks = list(self._collector.chunks())
        return sum(chunk.populated for chunk in chunks), sum(len(chunk.starts) for chunk in chunks)


class MemsetLoop:
    """Keeps the GPU busy: repeated memsets through cuda-bindings."""

    def __init__(self) -> None:
        self._driver: Any = import_module("cuda.bindings.driver")
        self._call("cuInit", 0)
        context = self._call("cuDevicePrimaryCtxRetain", self._call("cuDeviceGet", 0))
        self._call("cuCtxSetCurrent", context)
        self._memory = self._call("cuMemAlloc", WORK_BYTES)

    def go_on(self, seconds: float) -> None:
        """Keep the GPU busy for this long."""
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            self._call("cuMemsetD8Async", self._memory, 1, WORK_BYTES, 0)
            self._call("cuCtxSynchronize")

    def _call(self, name: str, *arguments: Any) -> Any:
        error, *results = getattr(self._driver, name)(*arguments)
        if int(error):
            raise RuntimeError(f"{name} failed: {getattr(error, 'name', error)}")
        return results[0] if results else None


def chip_name(api: Any) -> str:
    """Return CUPTI's name of device 0's chip: GH100."""
    question = api.DeviceGetChipNameParams()
    question.struct_size = api.DEVICE_GET_CHIP_NAME_PARAMS_STRUCT_SIZE
    question.device_index = 0
    api.device_get_chip_name(question.ptr)
    return str(question.p_chip_name)
