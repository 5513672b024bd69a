"""Build the tables of a serving engine from its records: requests, their spans, iterations and turns."""

from __future__ import annotations

import polars as pl

from fathom.sounding.raw.folder import Process
from fathom.sounding.schema import TABLES

PHASES = ("prefill", "decode", "recompute")
_RENAMED = {"arrival_ns": "start_ns"}
_TIMES = (
    *("arrival", "submitted", "token", "sent", "end", "start"),
    *("prepared", "computed", "sampled"),
)


def serving(process: Process) -> dict[str, pl.DataFrame]:
    """Return the tables by name; empty ones for a program that serves nothing."""
    iterations = sorted(process.of("iteration"), key=lambda record: record["start"])
    numbered = [{"iteration": number, **record} for number, record in enumerate(iterations)]
    turns = [
        {"iteration": record["iteration"], **_turn(*turn)} for record in numbered for turn in record["turns"]
    ]
    return {
        "requests": _table("requests", process.of("request")).sort("start_ns", "request"),
        "request_spans": _table("request_spans", process.of("span")).sort("start_ns"),
        "iterations": _table("iterations", numbered),
        "turns": _table("turns", turns),
    }


def _turn(request: int, phase: int, tokens: int, generated: int) -> dict[str, object]:
    return {"request": request, "phase": PHASES[phase], "tokens": tokens, "generated": generated}


def _table(name: str, records: list[dict[str, object]]) -> pl.DataFrame:
    """Return records as a table; names of times get the suffix of its columns."""
    rows = [
        {_column(key): value for key, value in record.items() if _column(key) in TABLES[name]}
        for record in records
    ]
    return pl.DataFrame(rows, schema=TABLES[name], strict=False)


def _column(key: str) -> str:
    timed = f"{key}_ns" if key in _TIMES else key
    return _RENAMED.get(timed, timed)
