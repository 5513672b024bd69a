"""Folded counters as a sounding keeps them: rows of its table `counters`, the rest among a rank's facts."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import polars as pl

from fathom.analysis.folding.pools import facts_of, recorded
from fathom.analysis.folding.results import Alignment, Folding
from fathom.analysis.results import Abstained
from fathom.sounding import COUNTERS

VERSION = 1  # of the figures: it grows whenever folding the same samples gives others
FACT, POOLS = "folding", "pools"


def facts_from(folding: Folding) -> dict[str, Any]:
    """What a rank's facts keep of a folding: its pools, and under `folding` all that is no row.

    `version`; `abstained`, each `what` and `why`; `alignment`, the fields of `Alignment` for each burst.
    """
    rest = {
        "version": VERSION,
        "abstained": [msgspec.to_builtins(one) for one in folding.abstained],
        "alignment": [one._asdict() for one in folding.alignment],
    }
    return {FACT: rest} | ({POOLS: facts_of(folding.pools)} if folding.pools else {})


def folding_from(frame: pl.DataFrame, facts: dict[str, Any]) -> Folding | None:
    """The folding of which a sounding keeps `frame` and `facts`; None where it keeps none of this version.

    Facts that cannot be read count as none.
    """
    rest = facts.get(FACT)
    if not isinstance(rest, dict) or rest.get("version") != VERSION:
        return None
    try:
        abstained = msgspec.convert(rest.get("abstained", []), list[Abstained])
        alignment = [Alignment(**one) for one in rest.get("alignment", [])]
    except (msgspec.ValidationError, TypeError):
        return None
    return Folding(frame, abstained, alignment, recorded(facts.get(POOLS)))


def packed(folding: Folding) -> bytes:
    """A folding as bytes."""
    table = io.BytesIO()
    folding.frame.write_parquet(table, compression="zstd", statistics=False)
    return msgspec.msgpack.encode((table.getvalue(), facts_from(folding)))


def unpacked(data: bytes) -> Folding | None:
    """The same from bytes; None where they are damaged."""
    try:
        table, facts = msgspec.msgpack.decode(data, type=tuple[bytes, dict[str, Any]])
        return folding_from(pl.read_parquet(io.BytesIO(table)).select(*COUNTERS), facts)
    except (msgspec.MsgspecError, pl.exceptions.PolarsError):
        return None
