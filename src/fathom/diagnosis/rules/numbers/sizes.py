"""Sizes of matmuls: layers that are not multiples of a word, and last waves that are nearly empty."""

from __future__ import annotations

import re
from math import ceil, floor

from fathom.diagnosis.rules.candidates import mended, ms_of, rates_of
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Product, Signals
from fathom.units import MS_PER_S

WORD = {"bf16": 8, "fp16": 8, "fp32": 4}  # elements in 16 bytes
VOCABULARY = 8192
MULTIPLE = {True: 128, False: 64}  # to which a vocabulary (True) or a layer is rounded up
LIKELY = {1: 0.35, 2: 0.4, 4: 0.6}  # of the time once aligned, by the largest power of two in the size
REACHED = 0.75  # of the ceiling, by aligned products
SMALL = 64
# Names of cuBLAS and CUTLASS: nvjet_sm90_tst_128x256_64x4_…, gemm_bf16_128x128_ldg8_…, tilesize128x256x64
TILE = re.compile(r"(?:nvjet\w*?|gemm\w*?|tilesize)_?(\d+)x(\d+)(?=_|x)")
SPLIT = re.compile(r"split|stream", re.IGNORECASE)  # split-K or stream-K
FILLED = 0.8  # of all waves: below it, another size is worth choosing
MOST = 5  # waves: with more, the tail is small
MOSTLY = 0.5  # of the products' time


@rule("numbers-odd-vocabulary", "numbers-odd-size")
def odd_sizes(signals: Signals) -> Candidates:
    """Find odd sizes of weights, regardless of the number of rows that pass through the layer."""
    products = [product for product in signals["numbers.products"] if product.dtype in WORD]
    forward = (product for product in products if not product.work.backward)
    odd = {size for product in forward for size in _layer(product)}
    for large in (True, False):
        sizes = {size for size in odd if (size >= VOCABULARY) == large}
        mine = [product for product in products if sizes & {*product.sides}]
        products = [product for product in products if product not in mine]
        if mine:
            yield _odd(signals, sizes, large, mine)


def _layer(product: Product) -> list[int]:
    if product.batch > 1:
        return []
    return [size for size in (product.n, product.k) if size > SMALL and size % WORD[product.dtype]]


def _odd(signals: Signals, sizes: set[int], large: bool, mine: list[Product]) -> Candidate:
    works = [product.work for product in mine]
    size = max(sizes, key=lambda s: ms_of(product.work for product in mine if s in product.sides))
    aligned = -(-size // MULTIPLE[large]) * MULTIPLE[large]
    return mended(
        signals,
        (works, _factor(mine, size, ms_of(works), rates_of(signals))),
        kind="numbers-odd-vocabulary" if large else "numbers-odd-size",
        evidence=[
            Evidence(f"matmuls with a dimension of {size:,}", ms_of(works), "ms per step"),
            Evidence("next aligned size", float(aligned), "elements"),
        ],
        confidence=0.85,
        check=f"pad {size} to {aligned}, and time the step",
    )


def _factor(mine: list[Product], size: int, ms: float, rates: dict[str, float]) -> float:
    """Return the share of the time once aligned: by the ceiling, or else typical for this alignment."""
    ceilings = [product.ceiling(rates) for product in mine]
    needs = [product.flops / rate for product, rate in zip(mine, ceilings, strict=True) if rate]
    if ms > 0 and len(needs) == len(mine):
        return min(MS_PER_S * sum(needs) / REACHED / ms, 1.0)
    return LIKELY.get(size & -size, 1.0)


@rule("numbers-tile-size")
def tile_size(signals: Signals) -> Candidates:
    """Find matmuls for which a slightly smaller size saves a whole wave."""
    places = signals["device.multiprocessors"]
    products = signals["numbers.products"]
    mine = [
        (product, waves) for product in products if (waves := waves_of(product, places)) and _wasteful(waves)
    ]
    ms = ms_of(product.work for product, _ in mine)
    if mine and ms >= MOSTLY * ms_of(product.work for product in products):
        yield _tiled(signals, mine, ms)


def waves_of(product: Product, places: int) -> float | None:
    """Return the waves of tiles, in the orientation with fewer tiles; None without a tile in the name."""
    tile = TILE.search(product.work.family)
    if tile is None or SPLIT.search(product.work.family):
        return None
    a, b = int(tile[1]), int(tile[2])
    tiles = min(ceil(product.m / x) * ceil(product.n / y) for x, y in ((a, b), (b, a)))
    persistent = min(product.work.blocks or places, places)  # blocks: one per multiprocessor, or a few fewer
    return product.batch * tiles / persistent


def _wasteful(waves: float) -> bool:
    return 1 < waves <= MOST and waves / ceil(waves) < FILLED


def _tiled(signals: Signals, mine: list[tuple[Product, float]], ms: float) -> Candidate:
    works = [product.work for product, _ in mine]
    left = sum(product.work.ms * floor(waves) / ceil(waves) for product, waves in mine)
    largest, waves = max(mine, key=lambda pair: pair[0].work.ms)
    return mended(
        signals,
        (works, left / ms),
        evidence=[
            Evidence(f"matmuls of {largest.m} × {largest.n} and similar sizes", ms, "ms per step"),
            Evidence("waves of tiles per matmul", waves, ""),
            Evidence("rows that fill whole waves", float(rows_that_fit(largest, waves)), "rows"),
        ],
        confidence=0.7,
        check="use a batch whose rows fill whole waves, and compare the time per row",
    )


def rows_that_fit(product: Product, waves: float) -> int:
    """Return the next smaller number of rows, in whole tiles, that fills whole waves."""
    tile = TILE.search(product.work.family)
    size = min(int(tile[1]), int(tile[2])) if tile else 1
    return max(floor(product.m * floor(waves) / waves) // size * size, size)
