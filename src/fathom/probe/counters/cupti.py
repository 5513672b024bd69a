"""PM sampling through cupti-python 13.3 or later (`cupti.pm_sampling.Collector`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from fathom.probe.counters import budget
from fathom.probe.counters.collector import HARDWARE_BUFFER_BYTES, TIME, Chunk, OverflowedError

MOST_CHUNKS = 10_000
# Before 13.3, this structure lacks its last field, the name of a single-pass set, and libcupti rejects a
# longer one. The bindings take its size from their module.
HOST_PARAMETERS, SHORT_BYTES = "PROFILER_HOST_INITIALIZE_PARAMS_STRUCT_SIZE", 48


class CuptiCollector:
    """The counters of one CUDA device, by its index in this process. Requires a CUDA context."""

    def __init__(self, device: int, buffer_bytes: int = HARDWARE_BUFFER_BYTES) -> None:
        self._api: Any = import_module("cupti.pm_sampling")
        self._buffer_bytes = buffer_bytes
        self._collector = self._api.Collector(device_index=device)
        self._at_once = budget.MOST_SAMPLES
        self._configured = False

    def open(self) -> None:
        """Reserve the monitors. Raises PermissionError, or RuntimeError if another process uses them."""
        self._collector.enable()
        fit_library()

    def configure(self, names: Sequence[str], interval: int, trigger: str = TIME) -> None:
        """Choose counters. Raises ValueError if the chip lacks one, or cannot count them all in one pass."""
        if self._configured:  # otherwise samples of a second burst are never complete (CUPTI 13.0)
            self._collector.disable()
            self._collector.enable()
        self._configured = True
        modes = self._api.TriggerMode
        self._collector.configure(
            metrics=list(names),
            hardware_buffer_size=self._buffer_bytes,
            sampling_interval=interval,
            trigger_mode=modes.GPU_TIME_INTERVAL if trigger == TIME else modes.GPU_SYSCLK_INTERVAL,
        )
        self._at_once = budget.samples(len(names))

    def start(self) -> None:
        self._collector.start()

    def stop(self) -> None:
        self._collector.stop()

    def chunks(self) -> Iterator[Chunk]:
        """Decode and evaluate the samples; each image is freed before the next is created."""
        for _ in range(MOST_CHUNKS):
            chunk = self._chunk()
            if chunk.populated:
                yield chunk
            if chunk.populated < self._at_once:
                return

    def _chunk(self) -> Chunk:
        try:
            data = self._collector.decode(max_samples=self._at_once)
        except MemoryError as error:
            raise OverflowedError(str(error)) from None
        samples = data[:]
        return Chunk(
            data.num_populated_samples,
            [sample.start_timestamp for sample in samples],
            [sample.end_timestamp for sample in samples],
            [sample.metric_values for sample in samples],
        )

    def close(self) -> None:
        self._collector.disable()
        self._configured = False


def fit_library() -> None:
    """Make cupti-python use the libcupti that the process has loaded, which may be older."""
    host = import_module("cupti.profiler_host")
    try:
        host.get_single_pass_sets(host.get_supported_chips()[0])
    except RuntimeError:  # the function does not exist: it came with the field
        setattr(import_module("cupti.cupti"), HOST_PARAMETERS, SHORT_BYTES)
