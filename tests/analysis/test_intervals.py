"""Sets of time against brute force: an interval is the set of its nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fathom.analysis import intervals
from fathom.analysis.intervals import Spans

anything = st.lists(st.tuples(st.integers(-20, 60), st.integers(-5, 20)), max_size=12).map(
    lambda pairs: intervals.spans([a for a, _ in pairs], [a + length for a, length in pairs])
)
tidy = anything.map(lambda values: intervals.union(*values))


def instants(spans: Spans) -> set[int]:
    return {t for a, b in zip(spans.starts.tolist(), spans.ends.tolist(), strict=True) for t in range(a, b)}


def assert_tidy(spans: Spans) -> None:
    assert (spans.ends > spans.starts).all()
    assert (spans.starts[1:] > spans.ends[:-1]).all() or (spans.starts[1:] >= spans.ends[:-1]).all()


@given(anything)
def test_union_covers_what_any_interval_covers(spans: Spans) -> None:
    result = intervals.union(*spans)
    assert instants(result) == instants(spans)
    assert (result.ends > result.starts).all()
    assert (result.starts[1:] > result.ends[:-1]).all()
    assert result.length == len(instants(spans))


@given(tidy, tidy)
def test_set_operations(a: Spans, b: Spans) -> None:
    for result, truth in (
        (intervals.intersect(a, b), instants(a) & instants(b)),
        (intervals.subtract(a, b), instants(a) - instants(b)),
        (intervals.merge(a, b), instants(a) | instants(b)),
        (intervals.complement(a, -30, 90), set(range(-30, 90)) - instants(a)),
    ):
        assert instants(result) == truth
        assert_tidy(result)


@given(tidy, st.lists(st.tuples(st.integers(-30, 90), st.integers(0, 40)), max_size=6))
def test_covered_counts_instants(spans: Spans, queries: list[tuple[int, int]]) -> None:
    starts = np.array([a for a, _ in queries], np.int64)
    ends = np.array([a + length for a, length in queries], np.int64)
    truth = [len(instants(spans) & set(range(a, b))) for a, b in zip(starts, ends, strict=True)]
    assert intervals.covered(spans, starts, ends).tolist() == truth
