"""Large results compared part by part: what comes out is what the whole says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.referee.child import values
from fathom.referee.child.side import save, snapshot
from fathom.referee.compare import errors as parts
from fathom.referee.compare.decode import Leaf
from fathom.referee.compare.errors import errors, nearness, same_gaps

numbers = st.sampled_from([0.0, -0.0, 1.0, -3.5, 1e-30, 1e30, float("nan"), float("inf"), float("-inf")])


def leaf(array: Any) -> Leaf:
    form = {"kind": "array", "place": "result", "dtype": str(array.dtype), "shape": list(array.shape)}
    return Leaf(form, memoryview(np.ascontiguousarray(array).tobytes()))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(numbers, numbers, numbers), max_size=20), st.sampled_from(["<f4", "<f8", "<c16"]))
def test_parts_say_what_the_whole_says(rows: list[tuple[float, float, float]], dtype: str) -> None:
    x, b, r = (np.array([row[at] for row in rows], np.dtype(dtype)) for at in range(3))
    before, parts.PART = parts.PART, 3
    try:
        result = nearness(leaf(x), leaf(b), leaf(r))
    finally:
        parts.PART = before
    wide = [leaf(array).numbers() for array in (x, b, r)]
    assert result.gaps == same_gaps(wide[0], wide[2], wide[1])
    for mine, total in ((result.mine, errors(wide[0], wide[2])), (result.theirs, errors(wide[1], wide[2]))):
        assert np.allclose([mine.norm, mine.worst], [total.norm, total.worst], rtol=1e-12, equal_nan=True)


def test_large_arrays_of_several_parts_agree_with_the_whole() -> None:
    random = np.random.default_rng(0)
    r = random.standard_normal((700, 301))
    x, b = r.astype(np.float32), (r * (1 + 1e-6)).astype(np.float32)
    x[5, 7] += 3
    result = nearness(leaf(x), leaf(b), leaf(r))
    assert result.gaps
    for mine, of in ((result.mine, x), (result.theirs, b)):
        total = errors(of.astype(float), r)
        assert mine.norm == pytest.approx(total.norm, rel=1e-12) and mine.worst == total.worst


def test_one_wrong_element_in_the_last_part_shows() -> None:
    r = np.ones(parts.PART * 2 + 1)
    for wrong in (5.0, np.nan):
        x = r.copy()
        x[-1] = wrong
        result = nearness(leaf(x), leaf(r), leaf(r))
        assert result.gaps == (wrong == 5.0) and not result.mine.worst <= 3 and result.theirs.worst == 0


def test_empty_and_single_numbers() -> None:
    assert nearness(*[leaf(np.empty((0, 3)))] * 3).mine == errors(np.empty(0), np.empty(0))
    assert nearness(*[leaf(np.array(2.0))] * 3).mine.norm == 0


# The contents of a side


def test_what_is_held_stays_though_buffers_are_used_again(tmp_path: Any) -> None:
    given, result = np.arange(6.0), np.arange(4.0)
    kept = snapshot({"y": result}, ((given,), {}), 1)
    result[:], given[:] = -1, -1
    said = save(kept, ((np.arange(6.0),), {}), tmp_path / "x")
    assert said["mutated"] == [] and (tmp_path / "x").read_bytes() == np.arange(4.0).tobytes()
    given = np.arange(6.0)
    given[2] = 9
    said = save(snapshot(result, ((given,), {}), 1), ((np.arange(6.0),), {}), tmp_path / "x")
    assert said["mutated"] == ["inputs[0][0]"]


@pytest.mark.programs
def test_bytes_of_tensors_of_every_layout() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(12.0).reshape(3, 4)
    for tensor in (
        x,
        x.T,
        x[:, ::2],
        x[:0],
        x.bfloat16(),
        torch.tensor(3),
        (x > 2),
        x.to(torch.complex64).conj(),
    ):
        plain = tensor.resolve_conj().contiguous().clone()
        assert values.raw(tensor) == values.raw(plain)
        assert values.equal(tensor, plain) and values.equal(tensor, values.copied(tensor))
    assert not values.equal(x, x + 1) and not values.equal(x, x.double())
    holed = torch.tensor([float("nan"), -0.0])
    assert values.equal(holed, holed.clone()) and not values.equal(holed, torch.tensor([float("nan"), 0.0]))
