"""Which names somebody means: what is surest comes first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.sounding import meant

NAMES = [
    "nvjet_sm90_tst_64x8 4x4·384",
    "gemv2T_kernel_val<float> 8·128",
    "softmax 8·1024",
    "softmax_backward 8·1024",
    "MulFunctor<bfloat16> (vectorized elementwise) 16·128",
]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("softmax 8·1024", [2]),  # in full, though another's name may hold it
        ("SOFTMAX", [2, 3]),
        ("<float>", [1]),
        ("soft*1024", [2, 3]),
        ("nvjet|gemv", [0, 1]),
        (r"^soft\w+d", [3]),
        ("(vec", [4]),  # no expression, but a part
        ("[", []),
        ("gemm*", []),  # no shell's pattern that finds any, and no expression for gem, m and more
        ("a{99999999999999}", []),
        ("conv", []),
    ],
)
def test_the_surest_way_of_naming_counts(pattern: str, expected: list[int]) -> None:
    assert meant(pattern, NAMES) == [NAMES[number] for number in expected]


@given(st.text(min_size=1), st.lists(st.text(), unique=True))
def test_whatever_is_asked_only_known_names_come_back_and_each_names_itself(
    pattern: str, names: list[str]
) -> None:
    assert set(meant(pattern, names)) <= set(names)
    assert all(meant(name, names) == [name] for name in names if name)
