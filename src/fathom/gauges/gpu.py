"""The GPU of a measuring process: timing by device events, sizes that fit, random data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from fathom.gauges.conditions import ConditionSensors, Watch
from fathom.gauges.job import GaugeJob
from fathom.gauges.measurements import Measurement, NotHereError
from fathom.gauges.timer import Effort, Sample, sample
from fathom.units import MS_PER_S

Workload = Callable[[], object]
CYCLES_PER_SECOND = 2e9  # approximately
AWAKE_S = 0.5  # the longest time that an idle GPU takes to raise its clocks
SHARE = 0.8  # share of the free memory that one measurement may use


class MeasuredGpu:
    """The GPU under measurement: `torch`, the device's properties, its sensors, and a new current stream.

    Raises NotHereError if torch sees no CUDA device.
    """

    def __init__(self) -> None:
        import torch

        if not torch.cuda.is_available():
            raise NotHereError("torch sees no CUDA device")
        torch.set_grad_enabled(False)
        torch.manual_seed(0)
        self.torch: Any = torch
        self.properties: Any = torch.cuda.get_device_properties(0)
        self.stream: Any = torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)
        self.sensors = ConditionSensors()
        self._wake()

    @property
    def multiprocessors(self) -> int:
        return int(self.properties.multi_processor_count)

    @property
    def capability(self) -> tuple[int, int]:
        return int(self.properties.major), int(self.properties.minor)

    @property
    def l2_bytes(self) -> int:
        return int(getattr(self.properties, "L2_cache_size", 0)) or 4 * 2**20

    def blocks(self, threads: int) -> int:
        """Return the number of blocks of `threads` threads that fill all multiprocessors once."""
        return self.multiprocessors * max(1, int(self.properties.max_threads_per_multi_processor) // threads)

    def room(self) -> int:
        """Free memory cached by earlier measurements, and return the bytes that may be allocated now."""
        self.torch.cuda.synchronize()
        self.torch.cuda.empty_cache()
        return int(SHARE * self.torch.cuda.mem_get_info()[0])

    def random(self, *shape: int, dtype: Any = None) -> Any:
        """Return a tensor of normally distributed values or, for integer types, values of the full range."""
        torch = self.torch
        dtype = dtype or torch.float32
        if not dtype.is_floating_point:
            limits = torch.iinfo(dtype)
            return torch.randint(limits.min, limits.max, shape, dtype=dtype, device="cuda")
        return torch.randn(shape, dtype=dtype, device="cuda")

    def seconds(self, work: Workload, count: int, lead_s: float = 0.0) -> float:
        """Return the device time of `count` calls of `work` in seconds, from the first start to the last end.

        A kernel that spins for `lead_s` runs first, so that the host can issue calls ahead of the device.
        """
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        if lead_s and hasattr(self.torch.cuda, "_sleep"):
            self.torch.cuda._sleep(round(CYCLES_PER_SECOND * lead_s))
        begin.record()
        for _ in range(count):
            work()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / MS_PER_S

    def sample(self, work: Workload, effort: Effort) -> Sample:
        """Return samples of the device time of `work`."""
        return sample(lambda count: self.seconds(work, count, effort.lead_s), effort)

    def measure(
        self,
        at: Mapping[str, object],
        work: Workload,
        amount: float,
        effort: Effort,
        flags: tuple[str, ...] = (),
    ) -> Measurement:
        """Measure `work`, which does `amount` (bytes, FLOPs …) per call, and the conditions during it."""
        with Watch(self.sensors) as watch:
            taken = self.sample(work, effort)
        return Measurement(at, taken, amount, watch.conditions, (*flags, *watch.flags))

    def _wake(self) -> None:
        values = self.random(2**24)
        sample(lambda n: self.seconds(lambda: values.mul_(-1), n), Effort(budget_s=0, warm_s=AWAKE_S))


@cache
def gpu() -> MeasuredGpu:
    """Return this process's GPU. Raises NotHereError without a GPU, and ImportError without torch."""
    return MeasuredGpu()


def effort(job: GaugeJob, seconds: float, **more: float) -> Effort:
    """Return an effort of about `seconds`, scaled by the job's pace; `more` are other fields of Effort."""
    return Effort(budget_s=seconds, **more).scaled(job.pace)
