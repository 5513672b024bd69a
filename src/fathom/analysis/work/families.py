"""The work of kernel families per step, from the ops that launched their kernels."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis.columns import filled
from fathom.analysis.entries import Entry
from fathom.analysis.roofline import TF32, needs
from fathom.analysis.work.annotate import IS_PRODUCT, SIGNATURE, WORK, bounded, totals, works_of
from fathom.analysis.work.communication import RECORD
from fathom.analysis.work.dtypes import DTYPES
from fathom.analysis.work.links import Links, connect
from fathom.analysis.work.recompute import recomputed
from fathom.analysis.work.tree import Rows
from fathom.machine import Limits

_LISTS = "TensorList"
_ELEMENT_SIZE = r"OpaqueType<(\d+)u?>"  # element size in the names of concatenation kernels
_ELEMENT_TYPE = r"(?:Functor|Op\w*)<(?:\w+::)*?(float|double|c10::BFloat16|c10::Half)\b"
_OF_SIZE = {"1": "uint8", "2": "bf16", "4": "fp32", "8": "fp64"}
_BOUNDED_BY = ["kind", "name", "direction", "footprint", "product", "again", "time", "several"]
MOSTLY = 0.5  # of a family's time
NEARLY = 0.9  # of its op's time: a kernel beside which a reduction or a copy hardly counts
_COLLECTIVE = "the size of the collective was not recorded"


def work_by_family(works: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Return the output of `works_in_windows` by entry and kernel family.

    Columns, per step: entry: that of the ledger; a collective counts once, as moving bytes from its
    `arrived_ns` if it has one, else as communication. family: that of `kernels`; for copies, their
    direction. flops, bytes: null unless known for all the family's time in the windows. dtype: of the
    arithmetic, if it is unique. known: the share of the family's time whose bytes are known. why: the most
    common reason for nulls. need_ns, bound, unbounded: with `limits`, the time at the ceilings, the ceiling
    that sets most of it, and the reason if it is null. product: FLOPs of matrix units. again: those that
    repeat the forward pass. unit: their ceiling. divided: whether most of its time is of ops that spend
    theirs in several kernels, among which the work is divided by time.
    """
    span = pl.col("time") * pl.col("inside")
    known = span.filter(pl.col("bytes").is_not_null()).sum() / span.sum()
    divided = span.filter("several").sum() > MOSTLY * span.sum()
    steps_used = max(int(windows["used"].sum()), 1)
    rows = works.group_by("entry", "family").agg(
        *totals(steps_used), *bounded(steps_used), known=known, divided=divided
    )
    return rows.sort("family", "entry")


def works_in_windows(
    ops: pl.DataFrame,
    launches: pl.DataFrame,
    kernels: pl.DataFrame,
    windows: pl.DataFrame,
    steps: pl.DataFrame | None = None,
    limits: Limits | None = None,
    links: Links | None = None,
) -> pl.DataFrame:
    """Return the work of each kernel in the used windows: columns of WORK and NEED, entry, family, `inside`.

    An op's work is distributed over its kernels by their time; a kernel counts with its share inside used
    windows. The marks (mark_ns) of `steps` align bursts whose ops contain no marks.
    """
    used = windows.filter(pl.col("used"))
    inside = _inside(_from_arrival(kernels), used)
    links = links or connect(ops, launches, kernels, steps)
    frame = kernel_works(ops, launches, kernels, steps, links).with_columns(
        owner=pl.Series(links.owner),
        instance=pl.Series(links.instance),
        op=pl.Series(links.op),
        entry=_entry(kernels),
        family=pl.coalesce(kernels["family"], kernels["direction"], kernels["name"]),
        inside=pl.Series(inside),
    )
    frame = frame.filter(pl.col("inside") > 0).with_columns(pl.col("flops", "bytes") * pl.col("inside"))
    return frame.with_columns(needs(frame, limits))


def _from_arrival(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels, with collectives cut to the time after their last peer, when bytes move."""
    if "arrived_ns" not in kernels.columns:
        return kernels
    return kernels.with_columns(start_ns=pl.coalesce("arrived_ns", "start_ns"))


def _entry(kernels: pl.DataFrame) -> pl.Series:
    """Return the ledger's entry of each kernel's work."""
    kind = pl.col("kind")
    met = pl.col("arrived_ns") if "arrived_ns" in kernels.columns else pl.lit(None, pl.Int64)
    moving, waiting = pl.lit(Entry.MOVING_BYTES), pl.lit(Entry.WAITING_FOR_PEERS)
    moves = pl.when(met < pl.col("end_ns")).then(moving).otherwise(waiting)
    shared = pl.when(met.is_null()).then(pl.lit(Entry.COMMUNICATION)).otherwise(moves)
    copied = kind.is_in(["copy", "set"])
    copies = pl.when(copied).then(pl.lit(Entry.COPY)).otherwise(pl.lit(Entry.COMPUTE))
    return kernels.select(entry=pl.when(kind == "collective").then(shared).otherwise(copies))["entry"]


def kernel_works(
    ops: pl.DataFrame,
    launches: pl.DataFrame,
    kernels: pl.DataFrame,
    steps: pl.DataFrame | None = None,
    links: Links | None = None,
) -> pl.DataFrame:
    """Return the columns of WORK for each kernel, and those that `needs` reads, `again` and `time`.

    `again` marks kernels that repeat part of the forward pass. `time` is the duration in ns, at least 1.
    """
    links = links or connect(ops, launches, kernels, steps)
    again = recomputed(ops, links.parent)
    time = (kernels["end_ns"] - kernels["start_ns"]).clip(lower_bound=1).alias("time")
    frame = pl.DataFrame(
        {
            "owner": links.owner,
            "instance": links.instance,
            "why": links.why,
            "kind": kernels["kind"],
            "name": kernels["name"],
            "moved": kernels["bytes"],
            "direction": kernels["direction"],
            "time": time,
            "computes": _computes(ops, kernels, links.owner),
            "again": (links.owner >= 0) & again[links.owner] if len(again) else links.owner >= 0,
        }
    )
    own = _shares(ops, frame)
    return own.select(*(_by_kind(name).alias(name) for name in WORK), *_BOUNDED_BY)


def _computes(ops: pl.DataFrame, kernels: pl.DataFrame, owner: Rows) -> pl.Series:
    """Return a mask of the kernels that do their owner's work: compute, and collectives of known size."""
    collective = kernels["kind"] == "collective"
    if not ops.height:
        return kernels["kind"] == "compute"
    sized = ops["name"].gather(np.maximum(owner, 0)) == RECORD
    return (kernels["kind"] == "compute") | (collective & sized.fill_null(False) & pl.Series(owner >= 0))


def _shares(ops: pl.DataFrame, frame: pl.DataFrame) -> pl.DataFrame:
    """Return each computing kernel's share of its owner's work, by time."""
    unit = ["owner", "instance"]
    computes = pl.col("computes")
    calls = (
        frame.filter(computes & (pl.col("owner") >= 0))
        .group_by(unit, maintain_order=True)
        .agg(
            total=pl.col("time").sum(),
            several=pl.len() > 1,
            names=pl.col("name").first(),
            tf32=pl.col("name").filter(pl.col("name").str.contains(TF32)).first(),
        )
    )
    rows = ops.select(SIGNATURE)[calls["owner"].to_numpy()]
    works = works_of(rows.with_columns(element=_element(rows, calls["names"])))
    works = works.with_columns(rows.select(product=IS_PRODUCT)["product"], footprint=pl.col("bytes"))
    calls = pl.concat([calls.drop("names"), works], how="horizontal")
    part = pl.col("time") / pl.col("total")
    return frame.join(calls, on=unit, how="left", maintain_order="left").with_columns(
        pl.col("flops", "bytes") * part,
        product=pl.col("product").fill_null(False) & computes,
        several=pl.col("several").fill_null(False) & computes & (part < NEARLY),
        # Auxiliary kernels of a product (split-K reduction, layout) share its FLOPs, and so its dtype.
        name=pl.coalesce(pl.when(computes & pl.col("product")).then("tf32"), "name"),
        abstained=pl.coalesce("why", "abstained"),
    )


def _element(rows: pl.DataFrame, kernels: pl.Series) -> pl.Series:
    """Return the dtype of a call's tensor lists from its kernel's name; null if there are no lists."""
    listed = filled(rows["dtypes"], "").str.contains(_LISTS, literal=True)
    names = kernels.set(~listed, None)  # because kernels have long names, and few calls have lists
    size = names.str.extract(_ELEMENT_SIZE).replace_strict(_OF_SIZE, default=None, return_dtype=pl.String)
    named = names.str.extract(_ELEMENT_TYPE).replace_strict(DTYPES, default=None, return_dtype=pl.String)
    return pl.select(pl.coalesce(size, named).alias("element"))["element"]


def _by_kind(name: str) -> pl.Expr:
    """Return a column of WORK from the owner, or from a copy's recorded bytes (twice within a device)."""
    moves = pl.col("kind").is_in(["copy", "set"])
    twice = pl.col("direction").fill_null("").str.starts_with("DtoD") & (pl.col("kind") == "copy")
    moved = pl.col("moved").cast(pl.Float64) * pl.when(twice).then(2.0).otherwise(1.0)
    missing = pl.when(pl.col("moved").is_null()).then(pl.lit("its bytes were not recorded"))
    direct = {"flops": pl.lit(0.0), "bytes": moved, "work_dtype": pl.lit(None), "abstained": missing}[name]
    unsized = pl.lit(_COLLECTIVE) if name == "abstained" else pl.lit(None)
    return (
        pl.when(moves)
        .then(direct)
        .when((pl.col("kind") == "collective") & ~pl.col("computes"))
        .then(unsized)
        .otherwise(pl.col(name))
        .cast(WORK[name])
    )


def _inside(kernels: pl.DataFrame, windows: pl.DataFrame) -> np.ndarray:
    """Return the share of each kernel, 0 to 1, that lies in the windows, which must not overlap."""
    if not windows.height or not kernels.height:
        return np.zeros(kernels.height)
    ordered = windows.sort("start_ns")
    origin = ordered["start_ns"][0]
    edges = np.column_stack([ordered["start_ns"].to_numpy(), ordered["end_ns"].to_numpy()]).ravel() - origin
    length = np.diff(edges, prepend=edges[0])
    length[::2] = 0  # time between windows does not count
    covered = np.cumsum(length)
    start = kernels["start_ns"].to_numpy() - origin
    end = np.maximum(kernels["end_ns"].to_numpy() - origin, start + 1)
    return (np.interp(end, edges, covered) - np.interp(start, edges, covered)) / (end - start)
