"""Shapes and dtypes of ops, as the profiler wrote them and as a stranger's file may have them."""

from __future__ import annotations

import json

import pytest

from fathom.diagnosis.signals.shapes import dtypes_of, lists_of, shapes_of


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("[[64, 128], []]", [[64, 128], []]),
        ("[[[2, 3], [4]], [5]]", [[], [5]]),  # a list of tensors is no shape
        ("[[-1, 2]]", [[]]),
        ("[[1.5]]", [[]]),
        ("{}", []),
        ("[", []),
        (None, []),
    ],
)
def test_malformed_shapes_are_empty(text: str | None, shapes: list[list[int]]) -> None:
    assert shapes_of(text) == shapes


def test_lists_of_tensors_and_dtypes() -> None:
    assert lists_of("[[[2, 3], [4]], [5]]") == [[2, 3], [4]]
    assert lists_of("[[2, 3]]") == []
    assert dtypes_of('["float", ""]') == ["float", ""]


def test_a_text_of_many_megabytes_is_not_parsed() -> None:
    of_a_large_model = json.dumps([[[4096, 4096]] * 5_000])
    assert len(lists_of(of_a_large_model)) == 5_000
    assert shapes_of("[" + "[2, 3], " * 4_000_000 + "[]]") == []
