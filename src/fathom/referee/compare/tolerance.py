"""Tolerances of results, from their dtype and the length of their reductions.

A sum of n terms in a precision of unit roundoff u has a relative error of about √n u with high probability
(Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41, 2019,
theorem 2.4); matrix units accumulate narrow formats in float32. Rounding operands, an intermediate and the
result to the storing format adds a u of that format each time. Hence

    relative norm  ≤  4 u_storing + 4 √n u_accumulating

The worst of N elements, with roughly normal errors, is within √(2 ln 2N) times that bound (the expected
maximum of N normal deviates), relative to the larger of the element and the root mean square of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

from fathom.errors import BadInputError

ROUNDINGS = 4
SPREAD = 4  # λ of the theorem: larger errors have a probability below 2 exp(−λ²/2) per element

# Unit roundoff: half the distance from 1 to the next number, 2^-p with p significant bits.
ROUNDOFF = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "tf32": 2.0**-11,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4,
    "float8_e4m3fnuz": 2.0**-4,
    "float8_e5m2": 2.0**-3,
    "float8_e5m2fnuz": 2.0**-3,
    # Codes with a scale for each row. Half a step is 1/254 of a row's largest value, which in rows of a few
    # hundred normal values is three times their root mean square.
    "int8 codes": 3 / 254,
    "complex128": 2.0**-53,
    "complex64": 2.0**-24,
    "complex32": 2.0**-11,
}
SHORT = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8_e4m3fn",
    "int8": "int8 codes",
    "tf32": "tf32",
}
_WIDE = ("float64", "complex128")


@dataclass(frozen=True)
class Tolerance:
    """Largest allowed relative norm of the error, and largest error of one element."""

    norm: float
    worst: float

    def at_least(self, norm: float, worst: float) -> Tolerance:
        """Return the tolerance with its values raised to at least these."""
        return Tolerance(max(self.norm, norm), max(self.worst, worst))


def tolerance(dtype: str, reduction: int, elements: int) -> Tolerance | None:
    """Return the tolerance for `elements` numbers, each a sum of `reduction` terms; None for exact dtypes."""
    storing = ROUNDOFF.get(dtype)
    if storing is None:
        return None
    accumulating = ROUNDOFF["float64" if dtype in _WIDE else "float32"]
    norm = ROUNDINGS * storing + SPREAD * sqrt(max(reduction, 1)) * accumulating
    return Tolerance(norm, norm * max(1.0, sqrt(2 * log(2 * max(elements, 1)))))


def declared(precision: str | None) -> str | None:
    """Return the format that a declared precision names. Raises BadInputError."""
    if precision is None or precision in ROUNDOFF:
        return precision
    if precision not in SHORT:
        raise BadInputError(f"'{precision}' is not a precision; choose from {', '.join(SHORT)}.")
    return SHORT[precision]


def coarser(dtype: str) -> list[str]:
    """Return the precisions below `dtype`, the finest first."""
    order = ["float64", "float32", "tf32", "bfloat16", "float8_e4m3fn"]
    own = ROUNDOFF.get(dtype, 0.0)
    return [name for name in order if ROUNDOFF[name] > own]
