"""How digests become answers of bounded length."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.agent.answers import Pages, _size, packed, text_of
from fathom.errors import BadInputError
from fathom.report.digest import Digest

VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=300))


@settings(max_examples=30)
@given(st.lists(st.lists(VALUES, min_size=3, max_size=3), max_size=60), st.integers(400, 2000))
def test_pages_hold_every_row_once_in_order_and_within_the_limit(rows, tokens):
    pages = Pages(tokens)
    answer = pages.first(Digest({"count": len(rows)}, rows, ["a", "b", "c"]))
    seen, left = list(answer.rows), answer.rows_left
    while answer.more:
        assert _size(answer.model_dump(exclude_defaults=True)) <= tokens
        answer = pages.next(answer.more)
        seen += answer.rows
        assert len(answer.rows) + answer.rows_left == left
        left = answer.rows_left
    assert len(seen) == len(rows)
    for row, given_row in zip(seen, rows, strict=True):
        assert len(row) == 3
        for value, original in zip(row, given_row, strict=True):
            if isinstance(original, bool | int):
                assert value == original


def test_numbers_are_rounded_and_have_units():
    answer = Pages().first(Digest({"gain_ms": 1.23456, "n": 3.0}, [[math.inf, 2e-9]], ["x_bytes", "y"]))
    assert answer.facts == {"gain_ms": 1.235, "n": 3}
    assert answer.rows == [[None, 2e-9]]
    assert answer.units == {"gain_ms": "ms", "x_bytes": "B"}


def test_a_long_text_is_cut_and_says_so():
    answer = Pages(500).first(Digest({"text": "word " * 10_000}))
    assert "(50,000 characters)" in answer.facts["text"] and len(text_of(answer)) < 2000


def test_what_cannot_fit_is_refused():
    with pytest.raises(BadInputError, match="too wide"):
        Pages(500).first(Digest({}, [list(range(5000))], []))
    with pytest.raises(BadInputError, match="does not fit"):
        Pages(500).first(Digest({f"fact{n}": n for n in range(5000)}))


def test_a_handle_works_once_more_and_old_ones_are_forgotten():
    pages = Pages(500)
    rows = [[n, "some text of a row"] for n in range(200)]
    handles = [pages.first(Digest({}, rows, ["n", "text"])).more for _ in range(40)]
    assert pages.next(handles[-1]).rows == pages.next(handles[-1]).rows
    with pytest.raises(BadInputError, match="unknown or too old"):
        pages.next(handles[0])


def test_text_and_structure_say_the_same_and_no_control_character_passes():
    answer = Pages().first(Digest({"name": "evil\x1b[31m\u202e"}))
    result = packed(answer)
    assert result.structured_content == answer.model_dump(exclude_defaults=True)
    assert "\x1b" not in result.content[0].text and "\u202e" not in result.content[0].text
