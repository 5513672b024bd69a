"""Reductions: one FLOP per input element for a sum or a comparison of floats, three for a variance."""

from __future__ import annotations

from collections.abc import Callable

from fathom.analysis.work.call import Call, Tensor, Work, numel
from fathom.analysis.work.dtypes import SIZE, is_integral
from fathom.analysis.work.elementwise import FORMULAS as ELEMENTWISE
from fathom.analysis.work.elementwise import counted

_BOOLEANS = ("True", "False")


def _formula(
    dims: int, keep: int, flops: float = 1.0, out: str = "", dtype: int = -1, indices: bool = False
) -> Callable[[Call], Work]:
    """Return a formula; `dims`, `keep` (keepdim) and `dtype` are argument positions.

    These are the positions in the overload with dimensions. The overload that reduces everything has no
    `keep`; its dtype follows the input.
    """

    def formula(call: Call) -> Work:
        x = call.tensor(0)
        along = call.value(keep) in _BOOLEANS
        asked = call.scalar_type(dtype if along else 1) if dtype >= 0 else None
        result = _kept(x, call.ints(dims) if along and call.value(dims) else [])
        size = SIZE[asked or out or str(x.dtype)] + (SIZE["int64"] if indices and along else 0)
        return counted(flops * x.numel, x.bytes + result * size, str(x.dtype))

    return formula


def _kept(x: Tensor, dims: list[int]) -> int:
    """Return the number of elements after reducing `dims`; [] reduces all dimensions."""
    rank = len(x.shape)
    if not dims or not rank:
        return 1
    reduced = {range(rank)[d] for d in dims}
    return numel([size for i, size in enumerate(x.shape) if i not in reduced])


def _sum(call: Call) -> Work:
    widened = "int64" if is_integral(str(call.tensor(0).dtype)) else ""
    return _formula(1, 2, out=widened, dtype=3)(call)


def _max(call: Call) -> Work:
    """Return the work of max(x), of max(x, dim, keepdim) with indices, or of max(x, other) by element."""
    if call.has(1):
        return ELEMENTWISE["aten::maximum"](call)
    return _formula(1, 2, indices=True)(call)


FORMULAS: dict[str, Callable[[Call], Work]] = {
    "aten::sum": _sum,
    "aten::mean": _formula(1, 2, dtype=3),
    "aten::prod": _formula(1, 2, dtype=3),
    "aten::amax": _formula(1, 2),
    "aten::amin": _formula(1, 2),
    "aten::max": _max,
    "aten::min": _max,
    "aten::argmax": _formula(1, 2, out="int64"),
    "aten::argmin": _formula(1, 2, out="int64"),
    "aten::all": _formula(1, 2, out="bool"),
    "aten::any": _formula(1, 2, out="bool"),
    "aten::var": _formula(1, 3, flops=3),
    "aten::std": _formula(1, 3, flops=3),
    "aten::linalg_vector_norm": _formula(2, 3, flops=2, dtype=4),
    "aten::norm": _formula(2, 3, flops=2),
}
