"""Memory over one step by category, from the allocator's events of the attribution phase.

Parameters, gradients and the optimizer's state are known by their addresses, which the probe reads from the
optimizers before and after the step. Other blocks are known by their lives: those from the forward pass that
the backward pass still needs are activations, those that are freed within their pass are temporaries.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

import polars as pl

from fathom.analysis.causes import AUTOGRAD
from fathom.analysis.resources import StepMemory
from fathom.sounding import Store

PARAMETERS, GRADIENTS, STATE = "parameters", "gradients", "optimizer state"
ACTIVATIONS, TEMPORARIES, OTHER = "activations", "temporaries", "other"
MEMORY_CATEGORIES = (PARAMETERS, STATE, GRADIENTS, ACTIVATIONS, TEMPORARIES, OTHER)
_NAMES = {"parameter": PARAMETERS, "gradient": GRADIENTS, "optimizer state": STATE}
_OPS = ["name", "kind", "thread", "start_ns", "end_ns", "phase", "burst"]

Owners = dict[int, tuple[str, int]]  # category and bytes by address
Row = tuple[int, str, int, int]  # time, event, address, bytes


class _Passes(NamedTuple):
    """When the recorded steps and their backward passes began, in ns."""

    steps: list[int]
    backwards: list[int]

    def is_needed(self, made: int, freed: int) -> bool:
        """Return whether a backward pass began while a block lived."""
        return bisect_right(self.backwards, freed) > bisect_right(self.backwards, made)

    def is_between(self, made: int, freed: int) -> bool:
        """Return whether a block was made after its step's backward pass began, and freed in another step."""
        step = bisect_right(self.steps, made)
        begun = bisect_right(self.backwards, made)
        since = self.steps[step - 1] if step else 0
        return bisect_right(self.steps, freed) > step and begun > 0 and self.backwards[begun - 1] >= since


def memory_over_step(store: Store, rank: int) -> pl.DataFrame | None:
    """Return the memory of a rank by category over its last step with recorded allocations; None without."""
    memory = store.table("memory", rank).filter(pl.col("address").is_not_null()).collect()
    if memory.is_empty():
        return None
    ops = store.table("ops", rank).filter(pl.col("phase") == "attribution")
    steps = store.table("steps", rank).filter(pl.col("phase") == "attribution", pl.col("parent").is_null())
    return by_category(memory, ops.select(_OPS).collect(), steps.collect())


def by_category(
    memory: pl.DataFrame, ops: pl.DataFrame, steps: pl.DataFrame | None = None
) -> pl.DataFrame | None:
    """Return the bytes of each category after each event of the last recorded step, from 0 ns on.

    `memory`, `ops` and `steps` are the tables of one rank; without `steps`, one step was recorded. The first
    device is chosen; the host without one. None if the step's allocations were not recorded.
    """
    events = memory.filter(pl.col("address").is_not_null(), phase="attribution").filter(
        pl.col("event").is_in(["alloc", "free"])
    )
    passed = ops.filter(phase="attribution")
    if events.is_empty() or passed.is_empty():
        return None
    device = max(events["device"].unique().to_list(), key=lambda index: (index >= 0, -index))
    last = int(passed["burst"].max())  # type: ignore[arg-type]
    passed = passed.filter(burst=last)
    events = events.filter(pl.col("time_ns") >= passed["start_ns"].min(), device=device).sort("time_ns")
    if events.is_empty():
        return None
    first, final = events["time_ns"][0], events["time_ns"][-1]
    owned = memory.filter(pl.col("event").str.starts_with("held"), device=device)
    before = owned.filter(pl.col("time_ns") <= first, event="held")
    after = owned.filter(pl.col("time_ns") >= final, event="held after")
    starts = _starts(steps, int(first), last)
    over_steps = _replayed(
        list(events.select("time_ns", "event", "address", "size").iter_rows()),
        _owners(before.filter(pl.col("time_ns") == pl.col("time_ns").max())),
        _owners(after.filter(pl.col("time_ns") == pl.col("time_ns").min())),
        _Passes(starts, _backwards(passed, starts)),
        events["allocated"][0] - _signed(events["event"][0], events["size"][0])
        if events["allocated"][0] is not None
        else None,
    )
    return _last_step(over_steps, starts[-1] - int(first) + 1)


def _starts(steps: pl.DataFrame | None, first: int, burst: int) -> list[int]:
    """Return when the recorded steps began; the first one with the first event."""
    marks = [] if steps is None else steps.filter(burst=burst)["mark_ns"].drop_nulls().sort().to_list()
    return [first, *(mark for mark in marks[1:] if mark > first)]


def _last_step(over_steps: pl.DataFrame, start: int) -> pl.DataFrame:
    """Return the rows from `start` ns on as one step, which begins with what was allocated then."""
    if start <= 1:  # there is only one
        return over_steps
    before = over_steps.filter(pl.col("ns") <= start).tail(1).with_columns(ns=start)
    rows = pl.concat([before, over_steps.filter(pl.col("ns") > start)], how="vertical_relaxed")
    return rows.with_columns(pl.col("ns") - start)


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


def _backwards(ops: pl.DataFrame, starts: list[int]) -> list[int]:
    """Return when each backward pass began; accumulated gradients take several in a step.

    A pass begins in each step, and where the thread of the forward pass ran ops since the last backward op.
    """
    backward = pl.col("name").str.starts_with(AUTOGRAD)
    begun = ops.filter(backward)["start_ns"].sort().to_list()
    ends = pl.when(backward).then("end_ns").forward_fill().cum_max().over("thread")
    rows = ops.filter(backward | (pl.col("kind") == "op")).sort("start_ns", maintain_order=True)
    forward = rows.filter(~backward, (pl.col("start_ns") >= rows.select(ends).to_series()).fill_null(True))
    times = forward.filter(pl.col("thread") == pl.col("thread").mode().min())["start_ns"].to_list()
    place = [(bisect_right(starts, time), bisect_right(times, time)) for time in begun]
    return [time for k, time in enumerate(begun) if not k or place[k] != place[k - 1]]


def _signed(event: str, size: int) -> int:
    return size if event == "alloc" else -size


def _replayed(
    rows: list[Row], before: Owners, after: Owners, passes: _Passes, total: int | None
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
    categories = _categories(rows, after, passes)
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


def _categories(rows: list[Row], after: Owners, passes: _Passes) -> dict[int, str]:
    """Return the category of each allocation, by its place in `rows`.

    A block made after a backward pass began, and freed in a later step, is a gradient by its size.
    """
    gradients = {size for category, size in after.values() if category in (GRADIENTS, PARAMETERS)}
    last: dict[int, int] = {}  # place of the allocation by address
    result: dict[int, str] = {}
    for place, (time, event, address, _) in enumerate(rows):
        if address in last:  # allocated anew, it was freed, too, though nothing recorded that
            made = last.pop(address)
            life = rows[made][0], time
            if rows[made][3] in gradients and passes.is_between(*life):
                result[made] = GRADIENTS
            else:
                result[made] = ACTIVATIONS if passes.is_needed(*life) else TEMPORARIES
        if event == "alloc":
            last[address] = place
    for address, place in last.items():
        result[place] = after.get(address, (OTHER, 0))[0]
    return result
