"""Comparing results: against numbers computed another way, in every dtype, with every kind of wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.errors import BadInputError
from fathom.referee.child import values
from fathom.referee.child.side import save, snapshot
from fathom.referee.compare.decode import Saved, decode, read
from fathom.referee.compare.errors import diagnose, errors, same_gaps, truncated
from fathom.referee.compare.judge import Judge
from fathom.referee.compare.tolerance import ROUNDOFF, coarser, declared, tolerance

random = np.random.default_rng(11)


def saved(tmp_path: Any, result: Any, call: Any = ((), {}), original: Any = ((), {})) -> Saved:
    path = tmp_path / "result.bin"
    return read({"inputs": "i", **save(snapshot(result, call, 1), original, path)}, path)


def judged(tmp_path: Any, mine: Any, theirs: Any, exact: Any = None, **options: Any) -> list[str]:
    three = [saved(tmp_path, r) for r in (mine, theirs, theirs if exact is None else exact)]
    return [reason.code for reason in Judge(**options).judge(*three)]


@pytest.mark.parametrize("n", [1, 8, 64, 512, 4096, 16384])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_honest_sums_of_any_length_are_within_their_tolerance(n: int, dtype: Any) -> None:
    """Summed one after another, the least exact order that anybody uses."""
    terms = random.standard_normal((200, n)).astype(dtype)
    wide = np.longdouble if dtype == np.float64 else np.float64
    exact = terms.astype(wide).sum(axis=1).astype(float)
    result = np.zeros(200, dtype)
    for column in terms.T:
        result += column
    allowed = tolerance(np.dtype(dtype).name, n, 200)
    assert allowed is not None and errors(result.astype(float), exact).within(allowed)


@pytest.mark.parametrize("n", [16, 256, 4096])
@pytest.mark.parametrize(("cut", "name"), [(13, "tf32"), (16, "bfloat16")])
def test_products_of_rounded_operands_are_not(n: int, cut: int, name: str) -> None:
    a, b = (random.standard_normal((40, n)).astype(np.float32) for _ in range(2))
    exact = a.astype(float) @ b.T.astype(float)
    less = rounded(a, cut).astype(float) @ rounded(b, cut).T.astype(float)
    assert diagnose(less, exact, "float32", n)[0] == "lower-precision"
    assert name in diagnose(less, exact, "float32", n)[1]
    allowed = tolerance("float32", n, exact.size)
    assert allowed is not None and errors((a @ b.T).astype(float), exact).within(allowed)


def rounded(x: np.ndarray, cut: int) -> np.ndarray:
    """To the nearest number with `cut` bits less of mantissa."""
    half = np.uint32(1 << (cut - 1))
    return ((x.view(np.uint32) + half) & ~np.uint32((1 << cut) - 1)).view(np.float32)


def test_a_wrong_result_of_small_error_is_not_said_to_be_of_a_lower_precision_for_sure() -> None:
    x = np.exp(np.random.default_rng(0).normal(size=(256, 256)))
    code, why = diagnose(x / x.sum(0, keepdims=True), x / x.sum(1, keepdims=True), "float32", 256)
    assert code == "lower-precision" and "or a wrong result" in why


def test_unit_roundoffs_are_those_of_the_formats() -> None:
    torch = pytest.importorskip("torch")
    for name, roundoff in ROUNDOFF.items():
        if name not in ("tf32", "float8_e5m2fnuz") and hasattr(
            torch, name
        ):  # torch is wrong about the latter
            dtype = getattr(torch, name)
            real = dtype.to_real() if dtype.is_complex else dtype
            assert roundoff == torch.finfo(real).eps / 2, name


@pytest.mark.parametrize("width", [64, 128, 256])
def test_rows_in_eight_bits_are_within_their_declared_precision(width: int) -> None:
    rows = np.random.default_rng(width).normal(size=(500, width))
    scale = np.abs(rows).max(axis=1, keepdims=True) / 127
    seen = errors(np.round(rows / scale) * scale, rows)
    allowed = tolerance(declared("int8") or "", 1, rows.size)
    assert allowed and seen.norm < allowed.norm and seen.worst < allowed.worst
    assert seen.norm > ROUNDOFF["bfloat16"], "bf16 would not explain it"


def test_a_precision_that_does_not_exist_is_refused() -> None:
    assert declared(None) is None and declared("bf16") == declared("bfloat16") == "bfloat16"
    with pytest.raises(BadInputError, match=r"'int9' is not a precision; choose from fp64, .*fp8"):
        declared("int9")


def test_tolerances_grow_with_length_size_and_coarseness() -> None:
    item, two = tolerance("float32", 16, 10), tolerance("float32", 4096, 1000)
    assert item and two and item.norm < two.norm and item.worst / item.norm < two.worst / two.norm
    assert tolerance("int64", 5, 5) is None and tolerance("bool", 5, 5) is None
    assert coarser("bfloat16") == ["float8_e4m3fn"] and coarser("float32")[0] == "tf32"


def test_kinds_of_wrong() -> None:
    exact = random.standard_normal((64, 64))
    halved, stripes = exact.copy(), exact.copy()
    halved[32:] = 0
    stripes[1::2] = exact[::2]
    assert diagnose(halved, exact, "float32", 8)[0] == "partial-result"
    assert diagnose(stripes, exact, "float32", 8)[0] == "partial-result"
    assert diagnose(np.full((64, 64), 3.0), exact, "float32", 8) == ("partial-result", "every element is 3")
    assert diagnose(exact[::-1], exact, "float32", 8)[0] == "wrong-result"
    assert diagnose(1.5 * exact, exact, "float32", 8)[0] == "wrong-result"


def test_truncation_shows_where_the_tolerance_does_not() -> None:
    exact = random.standard_normal(500)
    cut = (exact.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    assert truncated(cut.astype(float), exact, "float32") == "bfloat16"
    assert truncated(exact, exact, "float32") is None
    assert truncated(np.round(exact), np.round(exact), "float32") is None


finite = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20)


@given(finite)
def test_nothing_is_wrong_with_the_reference_itself(given_values: list[float]) -> None:
    x = np.array(given_values)
    result = errors(x, x)
    assert result.norm == result.worst == 0


@given(finite, st.integers(0, 19), st.sampled_from([np.nan, np.inf, -np.inf]))
def test_what_is_not_finite_must_be_where_it_is(given_values: list[float], at: int, odd: float) -> None:
    x = np.array(given_values)
    holed = x.copy()
    holed[at % len(x)] = odd
    assert same_gaps(holed, holed, None) and not same_gaps(x, holed, None) and not same_gaps(holed, x, None)
    assert same_gaps(holed, x, holed)  # the baseline overflows there, the reference does not


def test_a_reference_of_zeros_allows_nothing_else() -> None:
    zeros = np.zeros(4)
    assert errors(zeros, zeros).norm == 0 and errors(zeros + 1e-30, zeros).norm == np.inf


NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize("dtype", [*NARROW, "float64", "float32", "int64", "uint8", "bool", "complex64"])
def test_bytes_come_back_as_the_numbers_they_were(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    source = torch.randn(5, 7, dtype=torch.complex64) if dtype == "complex64" else 9 * torch.randn(5, 7)
    tensor = source.to(getattr(torch, dtype))
    kind = {"c": torch.complex128, "f": torch.float64, "b": torch.float64}.get(dtype[0], tensor.dtype)
    kind = tensor.dtype if dtype == "bool" else kind
    result = decode(values.raw(tensor.T), dtype).reshape(7, 5)
    assert np.array_equal(result, tensor.T.to(kind).numpy())


def test_an_unknown_dtype_is_told() -> None:
    with pytest.raises(BadInputError, match="float4"):
        decode(b"12345678", "float4_e2m1fn_x2")


def test_structures_are_compared_leaf_by_leaf(tmp_path: Any) -> None:
    x = random.standard_normal((4, 4))
    nested = {"a": [x, (1, 2.5)], "b": "text", "c": None}
    assert judged(tmp_path, nested, nested) == []
    assert judged(tmp_path, {**nested, "b": "other"}, nested) == ["wrong-result"]
    assert judged(tmp_path, {"a": nested["a"], "b": "text"}, nested) == ["contract"]
    assert judged(tmp_path, {**nested, "a": [x, (2, 2.5)]}, nested) == ["wrong-result"]
    assert judged(tmp_path, {**nested, "a": [x.T.copy().T, (1, 2.5)]}, nested) == ["contract"]


def test_strides_of_a_single_row_mean_nothing(tmp_path: Any) -> None:
    x = random.standard_normal((1, 6))
    assert judged(tmp_path, np.asfortranarray(x), x) == []


def test_integers_and_empty_arrays_are_exact(tmp_path: Any) -> None:
    tokens = np.arange(10)
    assert judged(tmp_path, tokens, tokens) == []
    assert judged(tmp_path, tokens + (tokens == 3), tokens) == ["wrong-result"]
    assert judged(tmp_path, np.zeros((0, 3)), np.zeros((0, 3))) == []


def test_a_baseline_that_amplifies_rounding_lends_its_own_error(tmp_path: Any) -> None:
    exact = random.standard_normal(400)
    theirs, mine = ((exact + 1e-4 * random.standard_normal(400)).astype(np.float32) for _ in range(2))
    assert judged(tmp_path, mine, theirs, exact) == []
    assert judged(tmp_path, (exact + 1e-3).astype(np.float32), theirs, exact) == ["lower-precision"]


def test_what_is_declared_is_allowed(tmp_path: Any) -> None:
    a, b = (random.standard_normal((32, 64)).astype(np.float32) for _ in range(2))
    exact = a.astype(float) @ b.T.astype(float)
    less = rounded(a, 13) @ rounded(b, 13).T
    assert judged(tmp_path, less, a @ b.T, exact, longest=64) == ["lower-precision"]
    assert judged(tmp_path, less, a @ b.T, exact, longest=64, claim="tf32") == []


def test_an_earlier_result_is_recognised(tmp_path: Any) -> None:
    judge, results = Judge(), [random.standard_normal(50) for _ in range(2)]
    first, second = (saved(tmp_path, r) for r in results)
    assert judge.judge(first, first, first) == []
    later = Saved(second.leaves, [], [], "other inputs")
    stale = Saved(first.leaves, [], [], "other inputs")
    assert [reason.code for reason in judge.judge(stale, later, later)] == ["cached-result"]


def test_changed_inputs_and_shared_memory_are_told(tmp_path: Any) -> None:
    x = random.standard_normal(10)
    before = x.copy()
    x[3] = 5
    result = saved(tmp_path, x[2:], ((x,), {}), ((before,), {}))
    assert result.mutated == ["inputs[0][0]"] and result.aliases == ["result and inputs[0][0]"]


def test_inputs_are_refilled_in_place() -> None:
    old, new = {"a": (np.zeros(3), 1)}, {"a": (np.ones(3), 2)}
    array = old["a"][0]
    result = values.refilled(old, new)
    assert result["a"][0] is array and array.tolist() == [1, 1, 1] and result["a"][1] == 2
    other = values.refilled(array, np.ones(4))
    assert other.shape == (4,) and other is not array


def test_arguments_come_in_four_forms() -> None:
    assert values.arguments((1, 2)) == ((1, 2), {})
    assert values.arguments({"a": 1}) == ((), {"a": 1})
    assert values.arguments(((1,), {"a": 2})) == ((1,), {"a": 2})
    assert values.arguments([1]) == (([1],), {})
