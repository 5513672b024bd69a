"""How far a recorded program is from its plan, entry by entry.

The recording gives the work of each kernel (FLOPs, compulsory bytes, launch shape) and the machine file gives
the rates. Recorded durations do not enter the plan.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import msgspec

from fathom.analysis import FORWARD, Operators
from fathom.analysis.entries import IDLE, Entry
from fathom.analysis.results import Device, Examination, LedgerRow
from fathom.data import load
from fathom.errors import BadInputError
from fathom.machine import Ceiling, find_ceiling, from_machine
from fathom.machine.model import Machine
from fathom.planner.training.host_ops import HostOps
from fathom.planner.training.pace import DEVICE, HOST, PHASES, pace_of
from fathom.units import MS_PER_S, US_PER_MS

_SHAPE = re.compile(r" (\d[\dx]*)·(\d[\dx]*)$")  # grid and block, at the end of a family's name
_BY_WAVES = (
    *("elementwise_kernel", "unrolled_elementwise", "vectorized_elementwise"),
    *("vectorized_layer_norm", "layer_norm_grad_input", "cudnn::fusion::"),
)
_PRODUCTS = ("nvjet", "sm90_xmma_gemm", "cutlass", "ampere_", "sm80_xmma_gemm")
_FUSED = ("sdpa", "flash")
_TILE = 128  # head dimension of the tiles of fused attention
_RESIDENT = 2048  # threads of a multiprocessor, in at most 32 blocks
_STREAMING = 0.93  # share of the memory rate that streaming kernels reach
_FLOOR_MS = 0.002  # shortest time of a kernel
_SMALL = 0.005  # of the step: rows of less are not listed
COVERING = 1.2816  # standard deviations to each side that cover four of five values of a normal distribution
_WIDEST = 20.0  # logarithm of an interval's end over the middle: a damaged machine file may have any spread
_QUARTILES = 1.349  # standard deviations between the quartiles
_UNKNOWN = 0.1  # of the operators: a smaller share changes little
_OF_PROGRAM = (Entry.INPUT, Entry.CHECKPOINT)
_OWN_PYTHON = (
    "Idle time is Python that calls operators and the optimizer; "
    "the program's own, such as logging, and waits for input are not planned."
)
_UNMEASURED = "Run `fathom machine measure` on that machine: a plan needs its measured ceilings."


class CheckedRow(msgspec.Struct, frozen=True):
    """One entry: planned and recorded milliseconds, and the relative error of the plan."""

    name: str
    planned_ms: float
    recorded_ms: float
    error: float | None


class Checked(msgspec.Struct):
    """A plan beside the recording of the same program: entries that add up to the step, then its kernels.

    Four of five steps should be between `low_ms` and `high_ms`; these are None without a measured pace.
    """

    verdict: str
    entries: list[CheckedRow]
    kernels: list[CheckedRow]
    notes: list[str] = []
    low_ms: float | None = None
    high_ms: float | None = None


def check_recorded(examination: Examination, machine: Machine, operators: Operators | None = None) -> Checked:
    """Return the plan of a recorded program beside its ledger. Raises BadInputError without a ledger.

    With the `operators` of the step, the host takes its measured pace for them.
    """
    if not examination.devices or not examination.devices[0].ledger:
        raise BadInputError("The sounding has no ledger to check a plan against; record it with a timeline.")
    device = examination.devices[0]
    planner = _Kernels(device, from_machine(machine), machine, _resident(examination), operators)
    work = [(row, planner.planned(row)) for row in device.ledger if not row.entry.startswith(IDLE)]
    entries = [*_by_entry(work), planner.gaps(work), *planner.unplanned()]
    kernels = [_row(row.detail, planned, row.ms) for row, planned in work if _matters(row, device)]
    low, high = planner.interval(work, sum(entry.planned_ms for entry in entries)) or (None, None)
    return Checked(_verdict(entries, low, high), entries, kernels, planner.notes(), low, high)


def _resident(examination: Examination) -> float:
    """Return the bytes of a step's tensors when it holds the most; 0 if they were not recorded."""
    memory = examination.memory
    if memory is None or memory.step is None:
        return 0.0
    return float(sum(size or 0 for size in msgspec.structs.astuple(memory.step)))


def _total(device: Device) -> float:
    return sum(row.ms for row in device.ledger)


class _Kernels:
    """Plans kernels from the ceilings of one device."""

    def __init__(
        self,
        device: Device,
        ceilings: list[Ceiling],
        machine: Machine,
        resident: float,
        operators: Operators | None,
    ) -> None:
        index = int(device.device.partition(":")[2] or 0) if device.device != "cpu" else None
        gpus = machine.get("gpus") or [{}]
        self.multiprocessors = gpus[min(index or 0, len(gpus) - 1)].get("multiprocessors")
        self.device, self.ceilings = device, ceilings
        self.cache = find_ceiling(ceilings, "l2.read", index)
        self.forward = find_ceiling(ceilings, "attention.forward.bf16", index)
        self.backward = find_ceiling(ceilings, "attention.backward.bf16", index)
        self.query = _query(device)
        self.gap = find_ceiling(ceilings, "latency.graph_node", index)
        on_host = device.device == "cpu"
        self.pace = pace_of(ceilings, operators, HOST if on_host else DEVICE, index)
        self.host = HostOps(ceilings, resident, self.pace) if on_host else None

    def planned(self, row: LedgerRow) -> float:
        """Return the milliseconds of a row: its work at the ceiling, and the laws of its kind of kernel."""
        count, name = row.count or 1.0, row.detail
        if self.host:
            return self.host.planned(row)
        if row.at_ceiling_ms is None:
            return count * _FLOOR_MS
        if row.entry == Entry.COPY:
            return max(row.at_ceiling_ms, count * MS_PER_S * (self.gap.value if self.gap else 0.0))
        if name.startswith(_PRODUCTS):
            return row.at_ceiling_ms + count * _data().product_us / US_PER_MS
        if any(word in name for word in _FUSED):
            return max(self._attention(row), row.at_ceiling_ms, count * _FLOOR_MS)
        if name.startswith(_BY_WAVES):
            blocks = count * waves(name, self.multiprocessors) * _data().wave_us / US_PER_MS
            return max(row.at_ceiling_ms / _STREAMING, blocks, count * _FLOOR_MS)
        few = self._few_blocks(row)
        return max(few if few > row.at_ceiling_ms else row.at_ceiling_ms / share_of(name), count * _FLOOR_MS)

    def _attention(self, row: LedgerRow) -> float:
        """Return the milliseconds of fused attention, whose tiles are as deep for small heads."""
        backward = "bprop" in row.detail or "bwd" in row.detail
        ceiling = self.backward if backward else self.forward
        if ceiling is None or not row.flops:
            return 0.0
        length, depth = self.query
        padded = max(1.0, _TILE / depth) * (1 + _TILE / length)  # tiles on the diagonal are computed whole
        return MS_PER_S * row.flops * padded / ceiling.value

    def _few_blocks(self, row: LedgerRow) -> float:
        """Return the milliseconds if too few blocks run to use all of the memory's bandwidth.

        One multiprocessor reads at most its share of the cache's bandwidth.
        """
        blocks, _ = launch_shape(row.detail)
        if not (blocks and self.cache and row.bytes and self.multiprocessors):
            return 0.0
        return MS_PER_S * row.bytes / (self.cache.value * min(1.0, blocks / self.multiprocessors))

    def gaps(self, work: list[tuple[LedgerRow, float]]) -> CheckedRow:
        """Return idle time: the device's gap after each kernel, and the time that it waits for the host."""
        others = {row.name for row in self.unplanned()}
        idle = sum(
            row.ms for row in self.device.ledger if row.entry.startswith(IDLE) and row.entry not in others
        )
        kernels = sum(row.count or 0.0 for row, _ in work)
        if self.host:
            return _row("idle", self.host.gaps(kernels), idle)
        planned = kernels * _data().gap_us / US_PER_MS
        if self.pace:
            busy = [(row, each + (row.count or 0.0) * _data().gap_us / US_PER_MS) for row, each in work]
            planned = self.pace.step(_by_phase(busy, self.pace.operators)) - sum(each for _, each in work)
        return _row("idle", planned, idle)

    def unplanned(self) -> Iterator[CheckedRow]:
        """Yield the waits of a processor that the program causes, which no machine file gives.

        A device is idle for less time than the host waits.
        """
        for entry in _OF_PROGRAM if self.host else ():
            waited = sum(row.ms for row in self.device.ledger if row.entry == entry)
            if waited:
                yield CheckedRow(entry, 0.0, waited, None)

    def interval(self, work: list[tuple[LedgerRow, float]], step: float) -> tuple[float, float] | None:
        """Return the milliseconds between which four of five steps should be; None if they are unknown.

        All work may be off alike, and so may the host's pace.
        """
        if self.pace is None or not step:
            return None
        if self.host:
            worked = sum(self.host.error(row) for row, _ in work)
            return _ends(step, math.hypot(self.pace.error, worked))
        busy, called = sum(each for _, each in work), sum(map(self.pace.total, PHASES))
        ends = zip(_ends(called, self.pace.error), _ends(busy, _spread() * busy), strict=True)
        least, most = map(max, ends)
        usual = max(called, busy)
        return max(0.0, step - usual + least), step - usual + most

    def notes(self) -> list[str]:
        """Return the gaps in the plan."""
        if self.host:
            return [*_host_notes(self.host), *self._of_unknown_work(), *self._of_pace()]
        if self.device.ceilings == "measured":
            return []
        return [_UNMEASURED]

    def _of_pace(self) -> Iterator[str]:
        """Yield notes on what a plan with the host's pace leaves out."""
        if self.pace:
            yield _OWN_PYTHON
            if self.pace.unknown() > _UNKNOWN:
                yield (
                    f"The pace of {100 * self.pace.unknown():.0f} % of the operators was not measured by "
                    "name, so they take the mean."
                )

    def _of_unknown_work(self) -> Iterator[str]:
        """Yield a note on the operators of unknown work, which the plan has as calls alone."""
        names = [
            row.detail
            for row in self.device.ledger
            if not row.entry.startswith(IDLE) and row.flops is None and row.bytes is None
            if _matters(row, self.device)
        ]
        if names:
            yield (
                f"The work of {', '.join(names)} is unknown, so the plan and its interval have only the "
                "time to call them."
            )


def _ends(ms: float, error: float) -> tuple[float, float]:
    """Return the ends of four of five values, if the logarithm of `ms` is off by `error / ms`."""
    factor = math.exp(min(COVERING * error / ms, _WIDEST)) if ms else 1.0
    return ms / factor, ms * factor


def _by_phase(work: list[tuple[LedgerRow, float]], operators: Operators) -> dict[str, float]:
    """Return the milliseconds of device work by the phase of the operators that launch it."""
    phases = dict.fromkeys(PHASES, 0.0)
    for row, ms in work:
        counts = {phase: operators.launched.get((row.detail, phase), 0.0) for phase in PHASES}
        if not any(counts.values()):
            counts[FORWARD] = 1.0
        for phase, count in counts.items():
            phases[phase] += ms * count / sum(counts.values())
    return phases


def _matters(row: LedgerRow, device: Device) -> bool:
    return row.ms > _SMALL * _total(device)


def _host_notes(host: HostOps) -> list[str]:
    """Return the gaps in the plan of a processor: ceilings, or ceilings measured without other load."""
    missing = host.missing()
    if missing:
        return [f"The machine file has no {', '.join(missing)}. {_UNMEASURED}"]
    if any(not ceiling.is_bound for ceiling in host.ceilings if ceiling.id.startswith("host.")):
        return ["Other processes used the processor while its ceilings were measured: measure it idle."]
    return []


def launch_shape(name: str) -> tuple[int, int]:
    """Return the blocks and threads per block in a family's name; zeros without a launch shape."""
    shape = _SHAPE.search(name.strip())
    if shape is None:
        return 0, 0
    blocks, threads = (math.prod(int(part) for part in text.split("x") if part) for text in shape.groups())
    return blocks, threads


def waves(name: str, multiprocessors: int | None) -> float:
    """Return how many times the blocks of a kernel fill all multiprocessors."""
    blocks, threads = launch_shape(name)
    if not blocks or not multiprocessors:
        return 0.0
    return blocks / (multiprocessors * min(32, max(1, _RESIDENT // max(1, threads))))


def _query(device: Device) -> tuple[float, float]:
    """Return length and head dimension of the recorded attention; those of large tiles without shapes."""
    for shape in device.shapes:
        if shape.category == "attention":
            with suppress(ValueError, TypeError, IndexError):
                query = json.loads(shape.shapes)[0]
                return float(query[-2]), float(query[-1])
    return math.inf, float(_TILE)


class _Rates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of kernels.yaml, which explains the fields."""

    wave_us: float
    product_us: float
    gap_us: float
    other: float
    kinds: dict[str, tuple[float, float, float, int]]


@cache
def _data() -> _Rates:
    return msgspec.convert(load(__package__, "kernels"), _Rates)


@cache
def _spread() -> float:
    """Return the usual standard deviation of the shares' logarithms within a kind, from its quartiles."""
    several = [(low, high) for _, low, high, count in _data().kinds.values() if count > 1 and low > 0]
    return statistics.median(math.log(high / low) for low, high in several) / _QUARTILES


def share_of(name: str) -> float:
    """Return the share of its ceiling that a kernel's kind reaches, by the beginning of its name."""
    known = _data().kinds
    kind = max((k for k in known if name.startswith(k)), key=len, default=None)
    return known[kind][0] if kind else _data().other


def _by_entry(work: list[tuple[LedgerRow, float]]) -> Iterator[CheckedRow]:
    for entry in dict.fromkeys(row.entry for row, _ in work):
        mine = [(planned, row.ms) for row, planned in work if row.entry == entry]
        yield _row(entry, sum(p for p, _ in mine), sum(r for _, r in mine))


def _row(name: str, planned: float, recorded: float) -> CheckedRow:
    return CheckedRow(name, planned, recorded, planned / recorded - 1 if recorded else None)


def _verdict(entries: list[CheckedRow], low: float | None, high: float | None) -> str:
    known = [row for row in entries if row.name not in _OF_PROGRAM]  # no machine file gives the other waits
    planned, recorded = (sum(getattr(row, key) for row in known) for key in ("planned_ms", "recorded_ms"))
    off = planned / recorded - 1
    longer = "longer" if off > 0 else "shorter"
    between = f" ({low:.4g} to {high:.4g})" if low is not None and high is not None else ""
    return (
        f"The plan is {100 * abs(off):.0f} % {longer} than the recorded step: "
        f"{planned:.4g} ms planned{between}, {recorded:.4g} ms recorded"
        f"{' without waits for input and checkpoints' if len(known) < len(entries) else ''}."
        f"{' The interval covers four of five steps.' if between else ''}"
    )
