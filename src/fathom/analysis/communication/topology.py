"""Groups of ranks on the topology of a job: which of them span hosts, and how fast each one is."""

from __future__ import annotations

import json
from collections.abc import Mapping

import polars as pl

from fathom.analysis.communication.results import Collective, PlacedGroup


def placed_groups(
    collectives: pl.DataFrame, rows: list[Collective], hosts: Mapping[int, str | None]
) -> list[PlacedGroup]:
    """Return the groups with known members that move bytes, the largest first.

    `rows` are the collectives of `collectives`, summarised; `hosts` maps each rank to its host.
    """
    members = collectives.filter(pl.col("members") != "").select("group", "members").unique().sort("group")
    groups = []
    for group, text in members.iter_rows():
        ranks, mine = _numbers(text), [row for row in rows if row.group == group and row.bytes]
        if len(ranks) < 2 or not mine or any(hosts.get(rank) is None for rank in ranks):
            continue
        groups.append(
            PlacedGroup(
                name=group,
                ranks=ranks,
                hosts=len({hosts[rank] for rank in ranks}),
                bytes=sum((row.bytes or 0.0) * row.count for row in mine),
                exposed_ms=sum(row.exposed_ms for row in mine),
                bus_bytes_per_s=max((row.bus_bytes_per_s or 0.0 for row in mine), default=0.0),
            )
        )
    return sorted(groups, key=lambda placed: -placed.bytes)


def _numbers(text: str) -> list[int]:
    try:
        read = json.loads(text)
    except json.JSONDecodeError:  # torch shortens long lists
        return []
    return [rank for rank in read if isinstance(rank, int)] if isinstance(read, list) else []
