"""Matrix products whose last wave of tiles is nearly empty."""

from __future__ import annotations

import re
from math import ceil, floor

from fathom.diagnosis.rules.rule import (
    Candidate,
    Candidates,
    Evidence,
    claims_of,
    family_totals,
    rule,
    shrink,
    site,
)
from fathom.diagnosis.signals import Product, Signals

# Names of cuBLAS and CUTLASS: nvjet_sm90_tst_128x256_64x4_…, gemm_bf16_128x128_ldg8_…, tilesize128x256x64
TILE = re.compile(r"(?:nvjet\w*?|gemm\w*?|tilesize)_?(\d+)x(\d+)(?=_|x)")
SPLIT = re.compile(r"split|stream", re.IGNORECASE)  # split-K or stream-K
FILLED = 0.8  # of all waves: below it, another size is worth choosing
MOST = 5  # waves: with more, the tail is small
MOSTLY = 0.5  # of the products' time


@rule("numbers-tile-size")
def tile_size(signals: Signals) -> Candidates:
    """Find products for which a slightly smaller size saves a whole wave."""
    places = signals["device.multiprocessors"]
    products = signals["numbers.products"]
    mine = [
        (product, waves) for product in products if (waves := waves_of(product, places)) and _wasteful(waves)
    ]
    ms = sum(product.work.ms for product, _ in mine)
    if not mine or ms < MOSTLY * sum(product.work.ms for product in products):
        return
    yield _candidate(mine, ms, family_totals(signals["kernels.work"]))


def waves_of(product: Product, places: int) -> float | None:
    """Waves of tiles, in the orientation with fewest tiles; None if the kernel's name has no tile."""
    tile = TILE.search(product.work.family)
    if tile is None or SPLIT.search(product.work.family):
        return None
    a, b = int(tile[1]), int(tile[2])
    tiles = min(ceil(product.m / x) * ceil(product.n / y) for x, y in ((a, b), (b, a)))
    persistent = min(product.work.blocks or places, places)  # blocks: one per multiprocessor, or a few fewer
    return product.batch * tiles / persistent


def _wasteful(waves: float) -> bool:
    return 1 < waves <= MOST and waves / ceil(waves) < FILLED


def _candidate(mine: list[tuple[Product, float]], ms: float, total: dict[str, float]) -> Candidate:
    works = [product.work for product, _ in mine]
    left = sum(product.work.ms * floor(waves) / ceil(waves) for product, waves in mine)
    largest, waves = max(mine, key=lambda pair: pair[0].work.ms)
    return Candidate(
        kind="numbers-tile-size",
        claims=claims_of(works, 1 - left / ms),
        evidence=[
            Evidence(f"products of {largest.m} × {largest.n} and the like", ms, "ms per step"),
            Evidence("waves of tiles in each", waves, ""),
            Evidence("number of rows that fills whole waves", float(rows_that_fit(largest, waves)), "rows"),
        ],
        changes=shrink(works, total, left / ms),
        doubt=0.2,
        confidence=0.7,
        check="a batch whose rows fill whole waves, and compare the time per row",
        **site(works),
    )


def rows_that_fit(product: Product, waves: float) -> int:
    """The next smaller number of rows that fills whole waves, in whole tiles."""
    tile = TILE.search(product.work.family)
    size = min(int(tile[1]), int(tile[2])) if tile else 1
    return max(floor(product.m * floor(waves) / waves) // size * size, size)
