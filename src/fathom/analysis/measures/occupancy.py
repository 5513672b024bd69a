"""Theoretical occupancy: the warps of a launch that fit on a multiprocessor, and the limiting resources."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import msgspec

from fathom.data import load


class Chip(msgspec.Struct, frozen=True):
    """The resources of a multiprocessor and their allocation units; see `chips.yaml`."""

    warp: int
    schedulers: int
    registers: int
    register_unit: int
    registers_per_thread: int
    threads_per_block: int
    shared_unit: int
    shared_reserved: int
    threads: int
    blocks: int
    shared: int
    shared_per_block: int
    alu: int
    l2_bytes_per_clock: int | None = None

    @property
    def warps(self) -> int:
        """Most warps that a multiprocessor can hold."""
        return self.threads // self.warp


class Occupancy(NamedTuple):
    """Blocks and warps per multiprocessor, and the warps as a `share` (0 to 1) of the most it can hold.

    `limiters` prevent one more block: registers, shared memory, blocks, warps, cluster. `next_at` gives the
    registers per thread and the shared memory per block with which one more block would fit.
    """

    blocks: int
    warps: int
    share: float
    limiters: list[str]
    next_at: dict[str, int]


@cache
def _chips() -> dict[str, Any]:
    return load(__package__, "chips")


def chip(capability: str | None) -> Chip | None:
    """Return the chip of a compute capability such as `9.0`; None if it is not listed."""
    row = _chips().get(capability or "")
    return msgspec.convert(row, Chip) if row and capability != "common" else None


def occupancy(
    on: Chip, threads: int, registers: int, shared: int, *, cluster: int = 1, sms_per_gpc: int | None = None
) -> Occupancy | None:
    """Return the occupancy of blocks of `threads` with `registers` per thread and `shared` bytes.

    `shared` is static plus dynamic memory. `cluster` blocks are placed within one of the chip's clusters of
    `sms_per_gpc` multiprocessors. None if the block cannot run. The calculation is that of NVIDIA's
    `cuda_occupancy.h`, with the multiprocessor's largest shared memory.
    """
    if threads < 1 or threads > on.threads_per_block or registers > on.registers_per_thread:
        return None
    warps = -(-threads // on.warp)
    limits = {
        "warps": on.warps // warps,
        "blocks": on.blocks,
        "registers": _by_registers(on, warps, registers),
        "shared memory": _by_shared(on, shared),
    }
    blocks = min(limits.values())
    if cluster > 1 and sms_per_gpc:
        limits["cluster"] = blocks * sms_per_gpc // cluster * cluster // sms_per_gpc
        blocks = min(limits.values())
    if blocks < 1:
        return None
    limiters = [name for name, limit in limits.items() if limit == blocks]
    held_warps = blocks * warps
    more = _next(on, warps, registers, shared, blocks)
    return Occupancy(blocks, held_warps, held_warps / on.warps, limiters, more)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _by_registers(on: Chip, warps: int, registers: int) -> int:
    """Return the blocks that fit by registers.

    Registers are allocated per warp, from a scheduler's part of the register file.
    """
    if not registers:
        return on.blocks
    each = _round_up(registers * on.warp, on.register_unit)
    if each * _round_up(warps, on.schedulers) > on.registers:
        return 0
    return on.registers // on.schedulers // each * on.schedulers // warps


def _by_shared(on: Chip, shared: int) -> int:
    each = _round_up(shared + on.shared_reserved, on.shared_unit)
    if each > on.shared_per_block + on.shared_reserved:
        return 0
    return on.shared // each if each else on.blocks


def _next(on: Chip, warps: int, registers: int, shared: int, blocks: int) -> dict[str, int]:
    """Return the largest use of each limiter alone with which one more block would fit."""
    largest = {}
    fewer = (r for r in range(registers - 1, 0, -1) if _by_registers(on, warps, r) > blocks)
    if (enough := next(fewer, None)) is not None:
        largest["registers"] = enough
    room = on.shared // (blocks + 1) // on.shared_unit * on.shared_unit - on.shared_reserved
    if 0 <= room < shared:
        largest["shared memory"] = room
    return largest
