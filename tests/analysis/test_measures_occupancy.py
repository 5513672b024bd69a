"""Occupancy against NVIDIA's own calculator (`data/occupancy.c` made the table with `cuda_occupancy.h`)."""

from __future__ import annotations

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.analysis.measures.facts import chip, occupancy
from tests.support.paths import DATA

ROWS = list(csv.DictReader((DATA / "occupancy.csv").open()))


@pytest.mark.parametrize("capability", sorted({row["capability"] for row in ROWS}))
def test_blocks_are_those_of_nvidias_calculator(capability):
    on = chip(capability)
    for row in (row for row in ROWS if row["capability"] == capability):
        result = occupancy(on, int(row["threads"]), int(row["registers"]), int(row["shared"]))
        assert (result.blocks if result else 0) == int(row["blocks"]), row


@pytest.mark.parametrize(
    "threads, registers, shared, limiter",
    [
        (256, 128, 0, "registers"),
        (128, 32, 60_000, "shared memory"),
        (32, 16, 0, "blocks"),
        (1024, 32, 0, "warps"),
    ],
)
def test_the_limiter_is_named(threads, registers, shared, limiter):
    result = occupancy(chip("9.0"), threads, registers, shared)
    assert limiter in result.limiters


def test_clusters_are_placed_whole():
    free = occupancy(chip("9.0"), 384, 168, 213_188)
    bound = occupancy(chip("9.0"), 384, 168, 213_188, cluster=16, sms_per_gpc=18)
    assert free.blocks == 1 and free.limiters != ["cluster"]
    assert bound is None or bound.blocks <= free.blocks


@given(st.integers(1, 1024), st.integers(1, 255), st.integers(0, 232_448))
def test_what_it_advises_lets_one_more_block_in(threads, registers, shared):
    on = chip("9.0")
    result = occupancy(on, threads, registers, shared)
    if result is None:
        return
    assert 0 < result.share <= 1
    if result.limiters == ["registers"] and "registers" in result.next_at:
        assert occupancy(on, threads, result.next_at["registers"], shared).blocks > result.blocks
    if result.limiters == ["shared memory"] and "shared memory" in result.next_at:
        assert occupancy(on, threads, registers, result.next_at["shared memory"]).blocks > result.blocks


def test_unknown_chips_and_impossible_blocks_have_none():
    assert chip("1.3") is None and chip(None) is None and chip("common") is None
    assert occupancy(chip("9.0"), 1025, 32, 0) is None
    assert occupancy(chip("9.0"), 0, 32, 0) is None
    assert occupancy(chip("9.0"), 128, 32, 240_000) is None
