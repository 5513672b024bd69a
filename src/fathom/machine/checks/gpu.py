"""GPUs as the checks query them; a missing reading raises an error with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from fathom.machine.checks.host import Host
from fathom.machine.checks.model import Observation, abstained, failed, unfit
from fathom.machine.checks.registry import subject_reader
from fathom.machine.files import NotOfferedError, UnreadableError, natural
from fathom.machine.nvml import ask, visible

IDLE = 2  # performance states P3 and above save power; clocks and links mean nothing there


@dataclass(frozen=True)
class Gpu:
    """One GPU in the driver's list."""

    index: int
    handle: Any
    host: Host

    @property
    def name(self) -> str:
        return f"GPU {self.index}"

    def ask(self, what: str, *more: Any) -> Any:
        """Query `nvmlDeviceGet{what}`. Raises NotOfferedError or UnreadableError."""
        return ask(self.host.nvml, f"nvmlDeviceGet{what}", self.handle, *more)

    @property
    def capability(self) -> tuple[int, int]:
        """Return the compute capability. Raises as `ask`."""
        major, minor = self.ask("CudaComputeCapability")
        return major, minor

    @property
    def address(self) -> str:
        """Return the PCI address as sysfs writes it. Raises as `ask`."""
        bus = self.ask("PciInfo").busId
        text = bus.decode() if isinstance(bus, bytes) else str(bus)
        return text.lower()[-12:]

    @property
    def idle(self) -> bool:
        """Return whether the GPU is saving power now; false if it does not report that."""
        try:
            return bool(self.ask("PerformanceState") > IDLE)
        except (NotOfferedError, UnreadableError):
            return False


def gpus(host: Host) -> list[Gpu]:
    """Return every GPU in the driver's list. Raises NotOfferedError if there is none."""
    if host.nvml is None:
        raise NotOfferedError(f"no GPU: {host.why_no_gpu}")
    count = ask(host.nvml, "nvmlDeviceGetCount")
    if not count:
        raise NotOfferedError("no GPU: the driver lists none")
    handles = [ask(host.nvml, "nvmlDeviceGetHandleByIndex", index) for index in range(count)]
    return [Gpu(index, handle, host) for index, handle in enumerate(handles)]


def switched(what: str, current: int, pending: int) -> Observation | None:
    """Fail if a mode changes at the next reset; None if it does not."""
    if current == pending:
        return None
    return failed(f"{what} is {on_off(current)}, and {on_off(pending)} after the next reset")


def on_off(value: int) -> str:
    """Return the state of a switch in words."""
    return "on" if value else "off"


def how_many(host: Host) -> int:
    """Return the number of GPUs in the driver's list; 0 if it cannot be queried."""
    try:
        return len(gpus(host))
    except (NotOfferedError, UnreadableError):
        return 0


def mine(host: Host) -> list[Gpu]:
    """Return the GPUs visible to a program started here; under a launcher, only its local rank's GPU."""
    every = gpus(host)
    seen = visible(host.nvml, host.environment)
    visible_gpus = [gpu for gpu in every if gpu.handle in seen]
    rank = natural(host.environment.get("LOCAL_RANK", ""))
    return [visible_gpus[rank]] if rank is not None and rank < len(visible_gpus) else visible_gpus


Look = Callable[[Gpu], Observation]


def each(devices: Iterable[Gpu], look: Look) -> Iterator[Observation]:
    """Apply `look` to every GPU and name it in its result; a GPU that cannot be queried abstains."""
    for gpu in devices:
        try:
            finding = look(gpu)
        except UnreadableError as error:
            finding = abstained(str(error))
        except NotOfferedError as error:
            finding = unfit(str(error))
        fill = {"gpu": str(gpu.index), **finding.fill}
        yield msgspec.structs.replace(finding, subject=gpu.name, fill=fill)


gpu_reader = subject_reader(lambda host, look: each(gpus(host), look))  # of each GPU
