"""Element types as the profiler names them, and the promotion rules of operators."""

from __future__ import annotations

# Kineto's name: (short name, bytes per element, category: 0 bool, 1 integer, 2 float, 3 complex)
_NAMED: dict[str, tuple[str, float, int]] = {
    "bool": ("bool", 1, 0),
    "unsigned char": ("uint8", 1, 1),
    "signed char": ("int8", 1, 1),
    "char": ("int8", 1, 1),
    "short": ("int16", 2, 1),
    "short int": ("int16", 2, 1),
    "unsigned short": ("uint16", 2, 1),
    "unsigned short int": ("uint16", 2, 1),
    "int": ("int32", 4, 1),
    "unsigned int": ("uint32", 4, 1),
    "long": ("int64", 8, 1),
    "long int": ("int64", 8, 1),
    "unsigned long": ("uint64", 8, 1),
    "unsigned long int": ("uint64", 8, 1),
    "c10::qint8": ("int8", 1, 1),
    "c10::quint8": ("uint8", 1, 1),
    "c10::Float4_e2m1fn_x2": ("fp4", 1, 2),  # one element holds two numbers
    "c10::Float8_e4m3fn": ("fp8", 1, 2),
    "c10::Float8_e4m3fnuz": ("fp8", 1, 2),
    "c10::Float8_e5m2": ("fp8", 1, 2),
    "c10::Float8_e5m2fnuz": ("fp8", 1, 2),
    "c10::Float8_e8m0fnu": ("fp8", 1, 2),
    "c10::Half": ("fp16", 2, 2),
    "c10::BFloat16": ("bf16", 2, 2),
    "float": ("fp32", 4, 2),
    "double": ("fp64", 8, 2),
    "c10::complex<c10::Half>": ("complex32", 4, 3),
    "c10::complex<float>": ("complex64", 8, 3),
    "c10::complex<double>": ("complex128", 16, 3),
}
DTYPES = {kineto: short for kineto, (short, _, _) in _NAMED.items()}
SIZE = {short: size for short, size, _ in _NAMED.values()}
_CATEGORY = {short: category for short, _, category in _NAMED.values()}

# c10::ScalarType, as a `dtype` argument prints among the concrete inputs
SCALAR_TYPE = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "fp16",
    6: "fp32",
    7: "fp64",
    8: "complex32",
    9: "complex64",
    10: "complex128",
    11: "bool",
    15: "bf16",
    23: "fp8",
    24: "fp8",
    25: "fp8",
    26: "fp8",
}
DEFAULT_FLOAT = "fp32"  # torch.get_default_dtype(), which traces do not record


def is_integral(dtype: str) -> bool:
    """Return whether `dtype` is a boolean or an integer."""
    return _CATEGORY[dtype] < 2


def promote(tensors: list[tuple[str, int]]) -> str:
    """Return the result type of (dtype, number of dimensions) pairs by PyTorch's promotion rules.

    Tensors without dimensions, such as converted Python numbers, count only if their category is higher.
    """
    full = [dtype for dtype, rank in tensors if rank] or [dtype for dtype, _ in tensors]
    result = full[0]
    for dtype in full[1:]:
        result = _wider(result, dtype)
    for dtype, rank in tensors:
        if not rank and _CATEGORY[dtype] > _CATEGORY[result]:
            result = DEFAULT_FLOAT if dtype == "fp64" else dtype
    return result


def _wider(a: str, b: str) -> str:
    if _CATEGORY[a] != _CATEGORY[b]:
        return a if _CATEGORY[a] > _CATEGORY[b] else b
    if {a, b} == {"fp16", "bf16"}:
        return "fp32"
    if {a, b} == {"int8", "uint8"}:
        return "int16"
    return a if SIZE[a] >= SIZE[b] else b
