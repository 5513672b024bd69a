"""Memory over one step by category, from the allocator's events of the attribution phase.

Parameters, gradients and the optimizer's state are known by their addresses, which the probe reads from the
optimizers before and after the step. Other blocks are known by their lives: those from the forward pass that
the backward pass still needs are activations, those that are freed within their pass are temporaries.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from fathom.analysis.resources import StepMemory
from fathom.sounding import Store

PARAMETERS, GRADIENTS, STATE = "parameters", "gradients", "optimizer state"
ACTIVATIONS, TEMPORARIES, OTHER = "activations", "temporaries", "other"
MEMORY_CATEGORIES = (PARAMETERS, STATE, GRADIENTS, ACTIVATIONS, TEMPORARIES, OTHER)
_NAMES = {"parameter": PARAMETERS, "gradient": GRADIENTS, "optimizer state": STATE}
BACKWARD = "autograd::engine::evaluate_function"  # begins the names of the backward pass's ops

Owners = dict[int, tuple[str, int]]  # category and bytes by address
Row = tuple[int, str, int, int]  # time, event, address, bytes


def memory_over_step(store: Store, rank: int) -> pl.DataFrame | None:
    """Return the memory of a rank by category over its last step with recorded allocations; None without."""
    memory = store.table("memory", rank).filter(pl.col("address").is_not_null()).collect()
    if memory.is_empty():
        return None
    ops = store.table("ops", rank).filter(pl.col("phase") == "attribution")
    return by_category(memory, ops.select("name", "start_ns", "phase", "burst").collect())


def by_category(memory: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame | None:
    """Return the bytes of each category after each event of the last recorded step, from 0 ns on.

    `memory` and `ops` are the tables of one rank. The first device is chosen; the host without one. None if
    the step's allocations were not recorded.
    """
    events = memory.filter(pl.col("address").is_not_null(), phase="attribution").filter(
        pl.col("event").is_in(["alloc", "free"])
    )
    if events.is_empty():
        return None
    device = max(events["device"].unique().to_list(), key=lambda index: (index >= 0, -index))
    passed = ops.filter(phase="attribution")
    last = passed["burst"].max()
    passed = passed.filter(burst=last)
    events = events.filter(pl.col("time_ns") >= passed["start_ns"].min(), device=device).sort("time_ns")
    if events.is_empty():
        return None
    first, final = events["time_ns"][0], events["time_ns"][-1]
    owned = memory.filter(pl.col("event").str.starts_with("held"), device=device)
    before = owned.filter(pl.col("time_ns") <= first, event="held")
    after = owned.filter(pl.col("time_ns") >= final, event="held after")
    return _replayed(
        list(events.select("time_ns", "event", "address", "size").iter_rows()),
        _owners(before.filter(pl.col("time_ns") == pl.col("time_ns").max())),
        _owners(after.filter(pl.col("time_ns") == pl.col("time_ns").min())),
        _backward(passed),
        events["allocated"][0] - _signed(events["event"][0], events["size"][0])
        if events["allocated"][0] is not None
        else None,
    )


def peak_of(over_step: pl.DataFrame) -> int:
    """Return the row in which all categories sum to the most."""
    return int(over_step.select(pl.sum_horizontal(MEMORY_CATEGORIES)).to_series().arg_max() or 0)


def at_peak(over_step: pl.DataFrame) -> StepMemory:
    """Return the bytes of each category when they sum to the most."""
    row = over_step.row(peak_of(over_step), named=True)
    return StepMemory(**{f"{name.replace(' ', '_')}_bytes": row[name] or None for name in MEMORY_CATEGORIES})


def _owners(rows: pl.DataFrame) -> Owners:
    columns = rows.select("address", "category", "size")
    return {address: (_NAMES.get(name, OTHER), size) for address, name, size in columns.iter_rows()}


def _backward(ops: pl.DataFrame) -> int | None:
    """Return when the backward pass began; None without one."""
    begun = ops.filter(pl.col("name").str.starts_with(BACKWARD))["start_ns"].min()
    return None if begun is None else int(begun)  # type: ignore[arg-type]


def _signed(event: str, size: int) -> int:
    return size if event == "alloc" else -size


def _replayed(
    rows: list[Row], before: Owners, after: Owners, backward: int | None, total: int | None
) -> pl.DataFrame:
    """Return the sums by category after each event. `total`: allocated before them; None if unknown.

    Frees on the host of blocks from before the profiler are not recorded: gradients that are gone after the
    step count as freed before it, those whose address is allocated anew until then.
    """
    seen = after.keys() | {address for _, _, address, _ in rows}
    live = {address: known for address, known in before.items() if address in seen}
    now = dict.fromkeys(MEMORY_CATEGORIES, 0)
    for category, size in live.values():
        now[category] += size
    unknown = _unknown_frees(rows, before)
    now[OTHER] += unknown if total is None else max(total - sum(now.values()), unknown)
    categories = _categories(rows, after, backward)
    start, result = rows[0][0] - 1, [{"ns": 0, **now}]
    for place, (time, event, address, size) in enumerate(rows):
        category, known = live.pop(address, (OTHER, 0 if event == "alloc" else size))
        now[category] -= known
        if event == "alloc":
            live[address] = categories[place], size
            now[categories[place]] += size
        result.append({"ns": time - start, **now})
    return pl.DataFrame(result).unique("ns", keep="last", maintain_order=True)


def _unknown_frees(rows: Iterable[Row], before: Owners) -> int:
    """Return the bytes that are freed in the step, but neither allocated in it nor known before."""
    live, total = set(before), 0
    for _, event, address, size in rows:
        if event == "alloc":
            live.add(address)
        elif address in live:
            live.remove(address)
        else:
            total += size
    return total


def _categories(rows: list[Row], after: Owners, backward: int | None) -> dict[int, str]:
    """Return the category of each allocation, by its place in `rows`."""
    last: dict[int, int] = {}  # place of the allocation by address
    result: dict[int, str] = {}
    for place, (time, event, address, _) in enumerate(rows):
        if event == "alloc":
            last[address] = place
        elif address in last:
            made = last.pop(address)
            needed = backward is not None and rows[made][0] < backward <= time
            result[made] = ACTIVATIONS if needed else TEMPORARIES
    for address, place in last.items():
        result[place] = after.get(address, (OTHER, 0))[0]
    return result
