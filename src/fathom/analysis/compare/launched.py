"""The op and module behind each entry of a ledger, with its dtypes and shapes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.account import Account
from fathom.analysis.device import detail
from fathom.analysis.entries import Entry
from fathom.analysis.rows import RowKey
from fathom.analysis.work.dtypes import DTYPES
from fathom.analysis.work.links import LINKED
from fathom.sounding import Store

DEPTH = 40  # of nested ops that are searched for a module
_COLUMNS = ("name", "module", "shapes", "dtypes")
_FAMILY = ("compute", "collective")
_SHARE = 0.05  # of an entry's time: an op with less is not named


class Launched(msgspec.Struct, frozen=True):
    """The op with most of an entry's time, its module, and the dtypes and shapes of its inputs.

    `ops` names it and the others that launch the entry's kernels: aten::bmm, aten::mm.
    """

    op: str = ""
    ops: str = ""
    module: str = ""
    dtypes: str = ""  # fp32, bf16
    shapes: str = ""  # 64×128, 128×128


def launched_by(store: Store, account: Account) -> dict[RowKey, Launched]:
    """Return the op of each entry of work on the first device; entries without a known op are missing."""
    subject = account.subjects[0]
    ops = store.table("ops", account.rank).collect()
    if subject.index is None:
        return _chosen(_of_processor(ops))
    if subject.links is None or ops.is_empty():
        return {}
    kernels = store.table("kernels", account.rank).filter(LINKED, device=subject.index)
    frame = kernels.with_columns(family=detail()).collect()
    links = subject.links
    row = np.where(links.owner >= 0, links.owner, links.op)
    named = _with_module(ops.select(_COLUMNS), links.parent)
    known = named[np.maximum(row, 0)].with_columns(known=pl.Series(row >= 0))
    work = pl.concat(
        [
            frame.select("kind", detail="family", ns=pl.col("end_ns") - pl.col("start_ns")),
            known,
        ],
        how="horizontal",
    )
    return _chosen(work.filter(pl.col("known"), pl.col("kind").is_in(_FAMILY)))


def _of_processor(ops: pl.DataFrame) -> pl.DataFrame:
    rows = ops.filter(pl.col("kind") == "op")
    columns = {"kind": pl.lit("op"), "detail": pl.col("name"), "ns": pl.col("end_ns") - pl.col("start_ns")}
    return rows.select(*_COLUMNS, **columns)


def _with_module(ops: pl.DataFrame, parent: np.ndarray) -> pl.DataFrame:
    """Fill in the module of ops that lack one from the ops around them."""
    modules = ops["module"].to_list()
    above = parent.tolist()
    for row, module in enumerate(modules):
        at, depth = row, 0
        while module is None and above[at] >= 0 and depth < DEPTH:
            at, depth = above[at], depth + 1
            module = modules[at]
        modules[row] = module
    return ops.with_columns(module=pl.Series(modules, dtype=pl.String))


def _chosen(work: pl.DataFrame) -> dict[RowKey, Launched]:
    """Return, for each entry, the op and inputs with the most time."""
    keys = ["kind", "detail", *_COLUMNS]
    totals = work.group_by(keys).agg(pl.col("ns").sum()).sort("ns", *keys, descending=[True, *[False] * 6])
    first = totals.with_columns(shaped=pl.col("shapes").is_not_null()).sort(
        "shaped", descending=True, maintain_order=True
    )
    named = _ops_of(work)
    result: dict[RowKey, Launched] = {}
    for kind, name, op, module, shapes, dtypes, *_ in first.iter_rows():
        for entry in _ENTRIES[kind]:
            inputs = _inputs(shapes, dtypes)
            ops = named.get((kind, name), op or "")
            result.setdefault((entry, name), Launched(op or "", ops, module or "", *inputs))
    return result


def _ops_of(work: pl.DataFrame) -> dict[tuple[str, str], str]:
    """Return the names of the ops behind each entry, by kind and detail, the one with most time first."""
    sums = work.drop_nulls("name").group_by("kind", "detail", "name").agg(pl.col("ns").sum())
    share = pl.col("ns") / pl.col("ns").sum().over("kind", "detail")
    named = sums.filter(share >= _SHARE).sort("ns", "name", descending=[True, False])
    grouped = named.group_by("kind", "detail", maintain_order=True).agg(pl.col("name").str.join(", "))
    return {(kind, detail): names for kind, detail, names in grouped.iter_rows()}


_ENTRIES = {
    "compute": (Entry.COMPUTE,),
    "collective": (Entry.COMMUNICATION, Entry.WAITING_FOR_PEERS, Entry.MOVING_BYTES),
    "op": (Entry.OPS,),
}


def _inputs(shapes: str | None, dtypes: str | None) -> tuple[str, str]:
    """Return the dtypes and shapes of the tensors among an op's inputs, as text."""
    sizes, kinds = _listed(shapes), _listed(dtypes)
    tensors = [place for place, size in enumerate(sizes) if isinstance(size, list) and size]
    types = dict.fromkeys(
        DTYPES.get(kinds[place], str(kinds[place])) for place in tensors if place < len(kinds)
    )
    return ", ".join(types), ", ".join(_size(sizes[place]) for place in tensors)


def _size(size: list[Any]) -> str:
    """Return `64×128`; a list of tensors gives the first of them and their number."""
    if isinstance(size[0], list):
        return f"{len(size)} of {_size(size[0])}" if size[0] else f"{len(size)} scalars"
    return "×".join(map(str, size))


def _listed(text: str | None) -> list[Any]:
    try:
        value = json.loads(text or "[]")
    except ValueError:
        return []
    return value if isinstance(value, list) else []
