"""Entries of the ledger are strings wherever they are stored, and their explanations fit beside them."""

from __future__ import annotations

import json

import msgspec
import polars as pl
import pytest

from fathom.analysis.entries import PRECEDENCE, Entry, cause_of, idle_entry, meaning_of
from fathom.analysis.results import LedgerRow

WIDTH = 25  # columns beside an entry, in a terminal of 80


@pytest.mark.parametrize("entry", Entry)
def test_an_entry_is_its_string(entry):
    assert f"{entry}" == str(entry) == entry.value == entry
    assert json.loads(json.dumps(entry)) == entry.value
    row = msgspec.json.decode(msgspec.json.encode(LedgerRow(entry, "", 1.0)))
    assert row["entry"] == entry.value
    frame = pl.DataFrame({"entry": [entry.value, "other"]})
    assert frame.filter(pl.col("entry") == entry).height == frame.filter(entry=entry).height == 1
    assert pl.select(pl.lit(entry)).to_series().dtype == pl.String
    assert len(entry.meaning) <= WIDTH and meaning_of(entry.value) == entry.meaning


def test_causes_are_those_of_idle_time():
    assert Entry.GC.cause == "gc" and idle_entry("gc") == Entry.GC
    assert Entry.COPY.cause == cause_of("unattributed") == ""
    assert cause_of(idle_entry("a lock")) == "a lock" and meaning_of(idle_entry("a lock")) == ""
    assert {idle_entry(cause) for cause in PRECEDENCE} <= set(Entry)
