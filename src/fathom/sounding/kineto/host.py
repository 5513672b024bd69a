"""The host's side of a trace: ops, annotations and runtime calls as tables, nested by time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from fathom.sounding.events import integrity
from fathom.sounding.events.arrays import Arrays, Table, nullable
from fathom.sounding.events.nesting import CALL, MODULE_FRAME, NONE, OP, USER_FRAME, Nesting, nest, through
from fathom.sounding.events.steps import MARK, NOTES
from fathom.sounding.kineto.columns import MODULE, TraceColumns
from fathom.sounding.kineto.stacks import frame_stacks
from fathom.sounding.manifest import Problem
from fathom.sounding.schema import IDS_PER_BURST


@dataclass
class HostTables:
    """The host's tables: `ops` without Fathom's marks, `launches`, and `notes` (marks and profiler steps).

    `stacks` has the Python frames in pauses between ops and calls.
    """

    ops: pl.DataFrame
    launches: pl.DataFrame
    notes: pl.DataFrame
    stacks: pl.DataFrame


def host_tables(columns: TraceColumns, base_ns: int, burst: int, problems: list[Problem]) -> HostTables:
    """Return the host's tables; `columns` releases its host events, `problems` gets damaged ones."""

    def take(table: Table, what: str) -> Arrays:
        return integrity.sound(table.take(), base_ns, columns.nameless, what, problems)

    names = columns.names.texts()
    ops = take(columns.ops, "ops")
    notes = _notes(ops, names)
    ops = _ordered(ops, ~_beginning(names, MARK)[ops["name"]])
    frames = take(columns.frames, "python frames")
    calls = _ordered(take(columns.calls, "launches"))
    around = _nested([ops, frames, calls], _beginning(names, MODULE))
    ids = np.arange(len(ops["name"])) + burst * IDS_PER_BURST
    callers = around.op[len(ids) + len(frames["name"]) :]
    launches = {**_common(calls, names, "api"), "correlation": nullable(calls["correlation"])}
    launches["op"] = through(ids, callers)
    outer = around.frame[len(ids) :][: len(frames["name"])] - len(ids)
    stacks = frame_stacks(*_user_frames(frames, outer, names), names, [_only_ops(ops), calls])
    return HostTables(_ops(columns, ops, frames, around, ids), pl.DataFrame(launches), notes, stacks)


def _only_ops(ops: Arrays) -> Arrays:
    return {name: ops[name][~ops["annotation"].astype(bool)] for name in ("thread", "start", "end")}


def _user_frames(frames: Arrays, outer: np.ndarray, names: pl.Series) -> tuple[Arrays, np.ndarray]:
    """Return the frames without modules, and the row of the frame around each of them or NONE."""
    wanted = np.flatnonzero(~_beginning(names, MODULE)[frames["name"]])
    place = np.full(len(frames["name"]) + 1, NONE)  # NONE is the last
    place[wanted] = np.arange(len(wanted))
    return {name: array[wanted] for name, array in frames.items()}, place[np.maximum(outer, NONE)[wanted]]


def _ops(
    columns: TraceColumns, ops: Arrays, frames: Arrays, around: Nesting, ids: np.ndarray
) -> pl.DataFrame:
    names, texts = columns.names.texts(), columns.texts.texts()
    callers = np.concatenate([ops["name"], frames["name"]])
    size = len(ids)
    module = names.str.strip_prefix(MODULE).gather(through(callers, around.module[:size]))
    source = names.gather(through(callers, around.frame[:size]))
    return pl.DataFrame(
        {
            "id": ids,
            "parent": through(ids, around.op[:size]),
            **_common(ops, names),
            "kind": pl.Series(["op", "annotation"]).gather(ops["annotation"].astype(np.int8)),
            **{text: texts.gather(ops[text]) for text in ("shapes", "dtypes", "values")},
            "provenance": columns.provenance.texts().gather(ops["provenance"]),
            "module": _first(columns.module.texts().gather(ops["module"]), module),
            "source": _first(columns.source.texts().gather(ops["source"]), source),
        }
    )


def _common(events: Arrays, names: pl.Series, name: str = "name") -> dict[str, pl.Series]:
    return {
        "thread": nullable(events["thread"]),
        name: names.gather(events["name"]),
        "start_ns": pl.Series(events["start"]),
        "end_ns": pl.Series(events["end"]),
    }


def _notes(ops: Arrays, names: pl.Series) -> pl.DataFrame:
    wanted = np.any([_beginning(names, prefix) for prefix in NOTES], axis=0)[ops["name"]]
    return pl.DataFrame(_common({name: array[wanted] for name, array in ops.items()}, names))


def _beginning(names: pl.Series, prefix: str) -> np.ndarray:
    return names.str.starts_with(prefix).fill_null(False).to_numpy()


def _ordered(events: Arrays, wanted: np.ndarray | None = None) -> Arrays:
    """Return the events in the mask `wanted`, sorted by start; of equal starts, the longer comes first."""
    order = np.lexsort((-events["end"], events["start"]))
    if wanted is not None:
        order = order[wanted[order]]
    return {name: array[order] for name, array in events.items()}


def _nested(groups: list[Arrays], is_module: np.ndarray) -> Nesting:
    """Nest ops, frames and calls; rows count through all three groups, in this order."""
    ops, frames, calls = groups
    of_frames = np.where(is_module[frames["name"]], MODULE_FRAME, USER_FRAME)
    kinds = np.concatenate([np.full(len(ops["name"]), OP), of_frames, np.full(len(calls["name"]), CALL)])
    thread, start, end = (
        np.concatenate([group[name] for group in groups]) for name in ("thread", "start", "end")
    )
    return nest(thread, start, end, kinds)


def _first(first: pl.Series, other: pl.Series) -> pl.Series:
    return first.zip_with(first.is_not_null(), other)
