"""How a GPU serves one warp, small enough to check by eye: sectors, banks, branches, each kernel's pattern.

Sectors are 32 bytes, shared memory has 32 banks of 4 bytes, a warp has 32 threads (CUDA C++ Programming
Guide, compute capability 5.0 and later).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

WARP, BANKS, WORD, SECTOR = 32, 32, 4, 32


def sectors(addresses: Iterable[int], size: int = WORD) -> int:
    """Sectors that one request of a warp touches: byte addresses of its active threads, `size` bytes each."""
    return len({byte // SECTOR for start in addresses for byte in (start, start + size - 1)})


def passes(words: Iterable[int]) -> int:
    """Passes over shared memory that one request takes: equal words share one, a bank's others don't."""
    banks: defaultdict[int, set[int]] = defaultdict(set)
    for word in words:
        banks[word % BANKS].add(word)
    return max(map(len, banks.values()), default=0)


def threads_an_instruction(branches: Sequence[int], lengths: dict[int, int]) -> float:
    """Mean active threads while a warp walks its branches one by one; `lengths` in instructions."""
    taken = set(branches)
    issued = sum(lengths[branch] for branch in taken)
    return sum(lengths[branch] for branch in branches) / issued


def blocks_held(registers: int, shared: int, threads: int, chip: dict[str, int]) -> dict[str, int]:
    """How many blocks a multiprocessor holds by each resource; the least is what it holds.

    Registers go to warps in units of 256, shared memory in units of 128 bytes with 1 KB a block on top.
    """
    warps = -(-threads // WARP)
    a_warp = -(-registers * WARP // 256) * 256
    a_block = -(-(shared + chip["reserved"]) // 128) * 128
    return {
        "registers": chip["registers"] // (a_warp * warps),
        "shared": chip["shared"] // a_block,
        "warps": chip["warps"] // warps,
        "blocks": chip["blocks"],
    }


H100 = {"registers": 65536, "shared": 228 << 10, "reserved": 1 << 10, "warps": 64, "blocks": 32}


def idle_in_waves(blocks: int, places: int) -> float:
    """Share of the places that idle, on average over the time that equal blocks take in waves."""
    return 1 - blocks / (-(-blocks // places) * places)


# Byte addresses that thread `lane` of a warp touches in global memory, as the kernel's index is written.
Address = Callable[[int], int]
STORES: dict[str, Address] = {
    "uncoalesced_flawed": lambda lane: WORD * (lane * 4096),  # to[x * n + y]
    "uncoalesced_mended": lambda lane: WORD * lane,  # to[y * n + x]
}
LOADS: dict[str, Address] = {
    "strided_flawed": lambda lane: WORD * (lane * 8),  # from[thread * EACH + i]
    "strided_mended": lambda lane: WORD * lane,
}
# Words of shared memory that the threads read: tile[x][y] with rows of 32 or 33.
SHARED: dict[str, Address] = {
    "bank_conflicts_flawed": lambda lane: lane * 32,
    "bank_conflicts_mended": lambda lane: lane * 33,
}
# The branch of a thread: place % 4, or warp % 4.
BRANCHES: dict[str, Callable[[int, int], int]] = {
    "divergence_flawed": lambda warp, lane: (warp * WARP + lane) % 4,
    "divergence_mended": lambda warp, lane: warp % 4,
}
