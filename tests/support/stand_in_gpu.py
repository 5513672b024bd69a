"""A GPU that is none: torch's CPU operations behind the calls that gauges make, so that their code runs."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import torch

from fathom.gauges import conditions, cuda, gpu
from fathom.machine.nvml import NvmlMissingError

MIB = 2**20
FACTORIES = ("rand", "randn", "randint", "empty", "zeros", "ones", "tensor")
ARGUMENTS = {
    "int": ctypes.c_int32,
    "unsigned": ctypes.c_int32,
    "long long": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}


class Event:
    def __init__(self, enable_timing: bool = False) -> None:
        self.timed, self.at = enable_timing, 0.0

    def record(self, stream: object = None) -> None:
        self.at = perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: Event) -> float:
        assert self.timed and end.timed
        return max(1e3 * (end.at - self.at), 1e-6)


class Stream:
    cuda_stream = 7

    def __init__(self, device: object = None) -> None:
        pass

    def synchronize(self) -> None:
        pass

    wait_event = wait_stream = lambda self, other: None


class Graph:
    """Counts the launches of its capture, and takes a microsecond for each of them in a replay."""

    capturing: Graph | None = None

    def __init__(self) -> None:
        self.nodes = 0

    def replay(self) -> None:
        until = perf_counter() + 1e-6 * self.nodes
        while perf_counter() < until:
            pass


@contextmanager
def capture(graph: Graph) -> Iterator[None]:
    Graph.capturing = graph
    yield
    Graph.capturing = None


@contextmanager
def nothing(*_: object) -> Iterator[None]:
    yield


class Cuda:
    """torch.cuda, as far as gauges use it."""

    Event, Stream, CUDAGraph, graph = Event, Stream, Graph, staticmethod(capture)
    device = stream = staticmethod(nothing)

    def __init__(self, capability: tuple[int, int], count: int) -> None:
        self.capability, self.count = capability, count
        self.current = Stream()

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return self.count

    def can_device_access_peer(self, item: int, other: int) -> bool:
        return True

    def get_device_properties(self, index: int) -> SimpleNamespace:
        major, minor = self.capability
        return SimpleNamespace(
            multi_processor_count=2,
            major=major,
            minor=minor,
            L2_cache_size=2**20,
            max_threads_per_multi_processor=2048,
        )

    def mem_get_info(self, device: object = None) -> tuple[int, int]:
        return 8 * MIB, 16 * MIB

    def current_stream(self) -> Stream:
        return self.current

    def set_stream(self, stream: Stream) -> None:
        self.current = stream

    synchronize = empty_cache = lambda self, *_: None

    def _sleep(self, cycles: int) -> None:
        if Graph.capturing is not None:
            Graph.capturing.nodes += 1


class Torch:
    """torch, whose `cuda` is a stand-in and whose devices are all the CPU."""

    def __init__(self, capability: tuple[int, int], count: int = 1) -> None:
        self.cuda = Cuda(capability, count)

    def __getattr__(self, name: str) -> Any:
        result = getattr(torch, name)
        if name == "device":
            return lambda *_: torch.device("cpu")
        return self._on_cpu(result) if name in FACTORIES else result

    def _on_cpu(self, factory: Callable[..., Any]) -> Callable[..., Any]:
        def make(*arguments: Any, device: object = None, pin_memory: bool = False, **more: Any) -> Any:
            return factory(*arguments, **more)

        return make


class Core:
    """cuda.core: checks what is launched against the kernel's own signature."""

    def __init__(self) -> None:
        self.launched = dict[str, list[tuple[Any, ...]]]()

    def ProgramOptions(self, std: str, arch: str) -> str:  # noqa: N802
        return arch

    def Program(self, code: str, kind: str, options: str) -> SimpleNamespace:  # noqa: N802
        assert kind == "c++" and options.startswith("sm_")
        return SimpleNamespace(
            compile=lambda target: SimpleNamespace(get_kernel=lambda n: (n, signature(code, n)))
        )

    def LaunchConfig(self, grid: int, block: int) -> SimpleNamespace:  # noqa: N802
        assert grid >= 1 and 1 <= block <= 1024
        return SimpleNamespace(grid=grid, block=block)

    def launch(self, stream: Any, config: Any, kernel: tuple[str, list[Any]], *arguments: Any) -> None:
        name, kinds = kernel
        assert stream.__cuda_stream__() == (0, 7)
        assert [type(argument) for argument in arguments] == kinds, name
        self.launched.setdefault(name, []).append((config.grid, config.block, *arguments))
        if name == "raise_flag":  # as the kernel does
            ctypes.c_int32.from_address(arguments[0]).value = arguments[1].value


def signature(code: str, name: str) -> list[Any]:
    """The types that a kernel's parameters must be given as; an int is an address."""
    parameters = re.search(rf"\b{name}\(([^)]*)\)", code)
    assert parameters, name
    words = [part.strip() for part in parameters.group(1).split(",") if part.strip()]
    return [int if "*" in word else ARGUMENTS[word.rsplit(" ", 1)[0]] for word in words]


def no_driver() -> None:
    raise NvmlMissingError("none")


def install(monkeypatch: Any, capability: tuple[int, int] = (9, 0), *, core: bool = True) -> Core:
    """Let gauges run on this GPU, with or without cuda-core; returns the launches."""
    here = gpu.MeasuredGpu.__new__(gpu.MeasuredGpu)
    here.torch = Torch(capability)
    here.properties = here.torch.cuda.get_device_properties(0)
    here.stream = here.torch.cuda.current_stream()
    here.sensors = conditions.ConditionSensors(no_driver, {})
    fake = Core()
    for cached in (gpu.gpu, cuda._core, cuda._compiled):
        getattr(cached, "cache_clear", int)()  # a replaced function has none
    for module in (
        "memory",
        "caches",
        "copies",
        "latency",
        "pace",
        "vector",
        "matmul",
        "attention",
        "cuda",
        "gds",
    ):
        monkeypatch.setattr(f"fathom.gauges.{module}.gpu", lambda: here)
    monkeypatch.setattr(cuda, "_core", (lambda: fake) if core else _absent)
    return fake


def _absent() -> None:
    raise cuda.NotHereError(cuda.WHY_NOT)
