"""Short names of kernels, and families of kernels with the same name and launch shape."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import polars as pl

_NAMESPACES = re.compile(
    r"\b(?:at::native|at_cuda_detail|at::cuda|at|c10|cutlass|std|cub|thrust|[a-z_]*internal|detail|CUB_\w+)::"
)
_LENGTH = re.compile(r"\d+")
_CASTS = re.compile(r"\(\w[\w: ]*\)(?=-?\d)")  # (bool)1, (int)4: nvcc's spelling of constants
# Template arguments that wrap the computation: the name is made of their arguments.
_WRAPPERS = frozenset((
    "gpu_kernel_impl", "gpu_kernel_impl_nocast", "AUnaryFunctor", "BUnaryFunctor", "BinaryFunctor",
    "UnaryOpFunctor", "ReduceOp", "func_wrapper_t", "Kernel", "Kernel2", "device_kernel", "GemmUniversal",
    "kernel_wrapper",
))  # fmt: skip
# Template arguments that do not identify the computation.
_NOISE = re.compile(
    r"(?:TensorList\w*Metadata|FusedOptimizer\w*|\w*OffsetCalculator|Load\w*Cast|Store\w*Cast|[Aa]rray"
    r"|integral_constant|integer_sequence|index_sequence|true_type|false_type|Policy\w*|\w*_?policy\w*|tuple"
    r"|Cat\w*Metadata|OpaqueType|TensorInfo|\w*Params|unroll|\w*Policy\d*|\w*Mode_t|decltype"
    r"|(?:unsigned|signed|const|true|false|void|char|long|int|short|float|double|bool|complex)\b.*"
    r"|(?:BFloat16|Half|Float8_e\w+|half_t|bfloat16_t|__\w*half|__\w*bfloat16)\b.*|\W.*|\d.*|)"
)
_SCALARS = {
    "float": "float", "double": "double", "Half": "half", "__half": "half", "half": "half", "half_t": "half",
    "BFloat16": "bfloat16", "__nv_bfloat16": "bfloat16", "bfloat16_t": "bfloat16",
    "__hip_bfloat16": "bfloat16", "Float8_e4m3fn": "float8_e4m3fn", "Float8_e5m2": "float8_e5m2",
    "int": "int", "long": "long", "short": "short", "bool": "bool", "unsigned char": "uint8",
    "signed char": "int8", "complex": "complex",
}  # fmt: skip
_FLOATS = frozenset(("float", "double", "half", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex"))


@dataclass
class _Name:
    """A C++ name `base<arguments>`; `called` are the argument types of a lambda at its end."""

    base: str
    arguments: list[_Name] = field(default_factory=list)
    called: list[_Name] = field(default_factory=list)


def short_name(name: str) -> str:
    """Return a kernel's name without return type, namespaces, argument list and most template arguments.

    Keeps the parts that distinguish kernels: `vectorized_elementwise_kernel<CUDAFunctor_add<float>>`.
    """
    if name.startswith("_Z"):
        return _mangled(name)
    if "<" not in name and "(" not in name:
        return name.removesuffix(".kd")
    if name.startswith(("Memcpy ", "Memset ")):
        return name.partition(" (")[0]
    parsed = _parse(_function(_plain(name)))
    chosen = _informative(parsed.arguments)[:2]
    if parsed.base in _WRAPPERS and chosen:
        return chosen[0]
    if not chosen:
        chosen = [_SCALARS[a.base] for a in parsed.arguments if _SCALARS.get(a.base) in _FLOATS][:1]
    return f"{parsed.base}<{', '.join(chosen)}>" if chosen else parsed.base or name


def _plain(name: str) -> str:
    name = name.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    name = name.replace(")>(", ")≥(").replace(")<(", ")≤(")  # comparison operators are not brackets
    return _NAMESPACES.sub("", _CASTS.sub("", name))


def _function(text: str) -> str:
    """Return `text` without the return type: the part after the last space outside of brackets."""
    depth = start = 0
    for place, letter in enumerate(text):
        if letter in "<({[":
            if letter == "(" and depth == 0:
                break
            depth += 1
        elif letter in ">)}]" and text[place - 1] != "-":
            depth -= 1
        elif letter == " " and depth == 0:
            start = place + 1
    return text[start:]


def _parse(text: str) -> _Name:
    text = text.strip()
    opening = re.search(r"[<(]", text)
    if opening is None:
        return _Name(text.rpartition("::")[2] if "{" in text else text)
    base = text[: opening.start()].rstrip(":")
    rest = text[opening.start() :]
    inner, rest = _bracket(rest)
    if opening[0] == "<":
        return _Name(base, [_parse(part) for part in inner])
    last = rest.rpartition("{lambda")[2].partition("#")[0]  # the dtype of a dispatched lambda
    called = _bracket(last)[0] if last.startswith("(") else []
    return _Name(base, called=[_parse(part) for part in called])


def _bracket(text: str) -> tuple[list[str], str]:
    """Split `text`, which starts with a bracket: return the parts in the bracket, and the text after it."""
    depth, start = 0, 1
    parts: list[str] = []
    for place, letter in enumerate(text):
        if letter in "<({[":
            depth += 1
        elif letter in ">)}]" and text[place - 1] != "-":
            depth -= 1
            if depth == 0:
                parts.append(text[start:place])
                return [part for part in parts if part.strip()], text[place + 1 :]
        elif letter == "," and depth == 1:
            parts.append(text[start:place])
            start = place + 1
    return parts, ""


def _informative(arguments: list[_Name], dtype: str | None = None) -> list[str]:
    """Return the arguments that identify the computation, each with its dtype or that of its wrapper."""
    chosen: list[str] = []
    for argument in arguments:
        scalars = (_SCALARS.get(part.base) for part in (*argument.arguments, *argument.called))
        own = dtype or next(filter(None, scalars), None)
        if argument.base in _WRAPPERS:
            chosen += _informative(argument.arguments, own)
        elif not _NOISE.fullmatch(argument.base.rpartition("::")[2]):
            chosen.append(argument.base + (f"<{own}>" if own else ""))
    return list(dict.fromkeys(chosen))


def _mangled(name: str) -> str:
    """Return the nested name in a mangled name, with the first identifier of its template arguments."""
    place = name.find("N", 0, 4) + 1 or 2
    base: list[str] = []
    while length := _LENGTH.match(name, place):
        place = length.end() + int(length[0])
        base.append(name[length.end() : place])
    words = _words(name, place) if name[place : place + 1] == "I" else iter(())
    argument = next((word for word in words if len(word) > 1 and word not in base), None)
    short = "::".join(base)
    return (f"{short}<{argument}>" if argument else short) or name


def _words(name: str, place: int) -> Iterator[str]:
    """Yield the identifiers of a mangled name from index `place` on; each follows its length."""
    while length := _LENGTH.search(name, place):
        place = length.end() + int(length[0])
        if name[length.start() - 1] != "L" and name[length.start() - 2 : length.start() - 1] != "L":
            yield name[length.end() : place]
        else:
            place = length.end()  # the number is a constant: Li128E, Lb0E


def with_families(kernels: pl.DataFrame) -> pl.DataFrame:
    """Add the column `family`: the short name and the launch shape (grid and block)."""
    names = kernels["name"].unique()
    short = dict(zip(names.to_list(), map(short_name, names.to_list()), strict=True))
    shape = pl.concat_str(pl.lit(" "), pl.col("grid"), pl.lit("·"), pl.col("block")).fill_null("")
    return kernels.with_columns(family=pl.col("name").replace_strict(short, return_dtype=pl.String) + shape)
