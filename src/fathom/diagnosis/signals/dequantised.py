"""Weights that are converted to a float type before each product that reads them."""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod

from fathom.diagnosis.signals.kernels import combined, launched
from fathom.diagnosis.signals.numbers import product_of
from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.rows import Dequantised, Kernel, Product, Work
from fathom.diagnosis.signals.shapes import dtypes_of, shapes_of
from fathom.diagnosis.signals.value import signal
from fathom.units import NS_PER_MS

QUANTISED = re.compile(r"^(signed char|unsigned char|char|c10::(qu?int8|Float8_e[45]m[0-9]\w*))$")
# Kernels of bitsandbytes (kDequantizeBlockwise), AWQ and GPTQ, which give a float matrix.
LIBRARY = re.compile(r"dequantiz|reconstruct_(exllama|gptq)", re.IGNORECASE)
# One kernel that dequantises and multiplies is the remedy; a cache is not a weight.
OTHER = re.compile(r"gemm|gemv|mat_?mul|mat_?vec|(^|_)mm(_|$)|attention|attn|cache", re.IGNORECASE)
LEAST = 1 << 18  # elements: smaller weights are not worth a finding
WITHIN = 6  # kernels from the first that reads the quantised weight to the product
Shape = list[int]


@signal("kernels.dequantised", "ms per step")
def dequantised(recorded: Recorded) -> Dequantised:
    """Return the kernels that make a float matrix of a quantised weight for the product after them."""
    rows = launched(recorded)
    mine: dict[tuple, list[Kernel]] = {}
    products = count = ns = 0
    for at, row in enumerate(rows):
        of_library = _of_library(row.label)
        weight = weight_of(row) if of_library is None else None
        if weight is None and not of_library:
            continue
        run, product = _until_product(rows[at : at + WITHIN + 1], weight)
        if product is not None:
            for kernel in run:
                key = (kernel.label, *kernel.ops, kernel.shapes, kernel.dtypes, kernel.module, kernel.source)
                mine.setdefault(key, []).append(kernel)
            products, count, ns = products + product.ns, count + 1, ns + sum(kernel.ns for kernel in run)
    per = recorded.steps
    works: list[Work] = [combined(kernels, per) for kernels in mine.values()]
    return Dequantised(works, ns / per / NS_PER_MS, products / per / NS_PER_MS, count / per)


@lru_cache(1 << 14)
def _of_library(label: str) -> bool | None:
    """Return whether a library's kernel only dequantises; None for other kernels."""
    return not OTHER.search(label) if LIBRARY.search(label) else None


def weight_of(row: Kernel) -> Shape | None:
    """Return the shape of a large quantised matrix that a kernel other than a product reads."""
    weight = _quantised(row.shapes, row.dtypes)
    if weight is None or _product(row) is not None or (row.ops and OTHER.search(row.ops[-1])):
        return None
    return weight


@lru_cache(1 << 14)
def _quantised(shapes: str | None, dtypes: str | None) -> Shape | None:
    """Return the shape of the first large quantised matrix among a kernel's inputs."""
    pairs = zip(shapes_of(shapes), dtypes_of(dtypes), strict=False)
    quantised = (shape for shape, dtype in pairs if QUANTISED.match(dtype))
    return next((shape for shape in quantised if len(shape) == 2 and prod(shape) >= LEAST), None)


def _until_product(rows: list[Kernel], weight: Shape | None) -> tuple[list[Kernel], Kernel | None]:
    """Return the kernels before the product that reads the weight, and that product; None without one."""
    run = [rows[0]]
    for row in rows[1:]:
        product = _product(row)
        if product is not None:
            return run, row if weight is None or reads(product, weight) else None
        if weight is not None and weight not in shapes_of(row.shapes):
            break
        run.append(row)
    return run, None


def reads(product: Product, weight: Shape) -> bool:
    """Return whether a matrix is the second operand of a product, and cannot be its first: an input."""
    m, n, k = product.sides
    return weight in ([n, k], [k, n]) and weight != [m, k]


def _product(row: Kernel) -> Product | None:
    return product_of(combined([row], 1))
