"""Results of folding, and their storage in a sounding: rows of its table `counters`, and facts of a rank."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import polars as pl

from fathom.analysis.results import Abstained
from fathom.sounding import COUNTERS, Facts


class Alignment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The position of one burst's samples on the kernels' clock: kernel time = sample time + shift.

    `shift_ns` applies at `middle_ns` and grows by `drift_ppm`, which is 0 if no drift was detected.
    `explained` is the share of the counters' variance that the kernels explain at that shift. `why` is the
    reason why the burst could not be aligned, "" if it could. A `steady` burst is nearly all in one state and
    needs no alignment: its `shift_ns` is 0, and its `error_ns` bounds the difference of the clocks.
    """

    device: int
    burst: int
    shift_ns: float
    error_ns: float
    drift_ppm: float
    middle_ns: int
    explained: float
    samples: int
    why: str = ""
    steady: bool = False


class Pool(msgspec.Struct, frozen=True):
    """Families of one function folded as one, named `label`, because each launch shape is too rare.

    Families that ran often enough, but not during all bursts, may have separate rows as well.
    """

    device: int
    label: str
    families: tuple[str, ...]


class Folding(NamedTuple):
    """Rows of the table `counters`, the reasons for missing ones, and the alignment of each burst.

    For families of a pool without sampled rows, the rows of the pool's label apply.
    """

    frame: pl.DataFrame
    abstained: list[Abstained]
    alignment: list[Alignment]
    pools: Sequence[Pool] = ()


VERSION = 1  # increase it whenever the same samples fold to other figures
FACT, POOLS = "folding", "pools"


def facts_from(folding: Folding) -> Facts:
    """Return the facts of a rank that store a folding: `pools`, and under `folding` everything except rows.

    These are `version`, `abstained` (each with `what` and `why`) and `alignment` (the fields of `Alignment`
    for each burst).
    """
    rest = {
        "version": VERSION,
        "abstained": msgspec.to_builtins(folding.abstained),
        "alignment": msgspec.to_builtins(folding.alignment),
    }
    return {FACT: rest} | ({POOLS: msgspec.to_builtins(folding.pools)} if folding.pools else {})


def folding_from(frame: pl.DataFrame, facts: Facts) -> Folding | None:
    """Return the stored folding by its rows and the rank's facts; None if none has this version."""
    rest = facts.get(FACT)
    if not isinstance(rest, dict) or rest.get("version") != VERSION:
        return None
    try:
        abstained = msgspec.convert(rest.get("abstained", []), list[Abstained])
        alignment = msgspec.convert(rest.get("alignment", []), list[Alignment])
    except msgspec.ValidationError:
        return None
    return Folding(frame, abstained, alignment, pools_from(facts))


def pools_from(facts: Facts) -> list[Pool]:
    """Return the pools in a rank's facts, without malformed ones."""
    recorded = facts.get(POOLS)
    rows = [row for row in recorded if isinstance(row, dict)] if isinstance(recorded, list) else []
    fields = [(row.get("device"), row.get("label"), row.get("families")) for row in rows]
    return [
        Pool(device, label, tuple(name for name in families if isinstance(name, str)))
        for device, label, families in fields
        if isinstance(device, int) and isinstance(label, str) and isinstance(families, list | tuple)
    ]


def packed(folding: Folding) -> bytes:
    """Encode a folding in MessagePack: its rows as Parquet, and its facts."""
    table = io.BytesIO()
    folding.frame.write_parquet(table, compression="zstd", statistics=False)
    return msgspec.msgpack.encode((table.getvalue(), facts_from(folding)))


def unpacked(data: bytes) -> Folding | None:
    """Decode a folding that `packed` encoded; None if the bytes are damaged."""
    try:
        table, facts = msgspec.msgpack.decode(data, type=tuple[bytes, Facts])
        return folding_from(pl.read_parquet(io.BytesIO(table)).select(*COUNTERS), facts)
    except (msgspec.MsgspecError, pl.exceptions.PolarsError):
        return None
