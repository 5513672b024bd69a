"""The conclusion of an inconclusive verdict, by times that were taken on H200s."""

from __future__ import annotations

import json
import re
from itertools import product
from typing import Any

import numpy as np
import pytest

from benchmarks.referee import equal_sides
from fathom.referee.blocks import Block
from fathom.referee.race import MOST_ROUNDS, Race, comparisons, conclude, doubt
from fathom.referee.verdict import Comparison, Verdict
from tests.support.paths import DATA

# ten proofs while another process proved on the same GPU, each block by its midmean in ns
BESIDE_ANOTHER = DATA / "referee_two_on_one_gpu.json"
MARGIN = 0.01
Blocks = list[list[float]]


def compared(baseline: Blocks, candidate: Blocks) -> Comparison:
    sides = [[Block({"": block}) for block in side] for side in (baseline, candidate)]
    (comparison,) = comparisons(Race(*sides), MARGIN)
    return comparison


def scattered(pairs: int, scatter: float, ratio: float = 1.0, seed: int = 0) -> Comparison:
    random = np.random.default_rng(seed)
    plain, tuned = 1e6 * np.exp(random.normal(0, scatter, (2, pairs, 1)))
    return compared(plain.tolist(), (ratio * tuned).tolist())


def test_proofs_beside_another_on_one_gpu_say_so() -> None:
    rows = json.loads(BESIDE_ANOTHER.read_text())
    assert len(rows) == 10
    for row in rows:
        assert "something else uses the machine" in str(doubt(compared(*_sides(row)), MARGIN)), row


@pytest.mark.skipif(not equal_sides.RESULT.exists(), reason="no proofs of a GPU are kept")
def test_proofs_alone_on_a_gpu_blame_nothing_else() -> None:
    rows = json.loads(equal_sides.RESULT.read_text())["proofs"]
    result = [compared(*_sides(row)) for row in rows]
    said = [doubt(item, MARGIN) for item in result]
    assert [note is not None for note in said] == [item.decision == "inconclusive" for item in result]
    assert any(said) and not [note for note in said if note and "something else" in note]


def _sides(row: dict[str, Any]) -> tuple[Blocks, Blocks]:
    return row["baseline"], row["candidate"]


def test_as_many_pairs_as_it_names_take_the_interval_off_the_margin() -> None:
    named = 0
    for (ratio, scatter), seed in product([(1.0, 0.015), (1.02, 0.015), (0.98, 0.014)], range(6)):
        result = scattered(16, scatter, ratio, seed)
        note = doubt(result, MARGIN) or ""
        if " would settle it" not in note or not result.ratio:
            continue
        named += 1
        needed = int(re.search(r"about (\d+) would settle it", note)[1])
        assert 16 < needed <= MOST_ROUNDS
        widths = [_half(scattered(needed, scatter, ratio, other)) for other in range(100, 120)]
        away = abs(abs(result.ratio - 1) - MARGIN)
        assert np.median(widths) == pytest.approx(max(away, MARGIN / 4), rel=0.5)
    assert named >= 5


def _half(comparison: Comparison) -> float:
    assert comparison.interval
    return (comparison.interval[1] - comparison.interval[0]) / 2


def test_what_no_number_of_pairs_settles_is_not_asked_more_time_for() -> None:
    assert "more time does not" in str(doubt(scattered(20, 0.03), MARGIN))


def test_processes_that_take_many_times_as_long_do_not_differ_by_thousands_of_per_cent() -> None:
    note = str(doubt(compared([[1e6], [3e7]] * 4, [[1e6], [1e6], [3e7], [3e7]] * 2), MARGIN))
    assert "differ 30-fold" in note


def test_a_ratio_at_the_end_of_the_margin_is_told_as_that() -> None:
    result = scattered(40, 0.001, 1 + MARGIN)
    assert result.decision == "inconclusive" and result.settled
    assert "the margin of 0.01" in str(doubt(result, MARGIN))


def test_a_decision_has_no_doubt_and_a_doubt_is_a_note() -> None:
    verdict = Verdict("inconclusive", None, None, [], MARGIN)
    conclude(verdict, scattered(20, 0.001, 0.9))
    assert verdict.verdict == "faster" and not verdict.notes
    conclude(verdict, scattered(20, 0.03))
    assert verdict.verdict == "inconclusive" and len(verdict.notes) == 1


def test_without_an_interval_nothing_is_said() -> None:
    assert doubt(scattered(1, 0.01), MARGIN) is None
