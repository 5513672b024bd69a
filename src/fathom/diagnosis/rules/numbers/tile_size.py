"""Products whose last wave of tiles is nearly empty."""

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

# As cuBLAS and CUTLASS name it: nvjet_sm90_tst_128x256_64x4_…, gemm_bf16_128x128_ldg8_…, tilesize128x256x64
TILE = re.compile(r"(?:nvjet\w*?|gemm\w*?|tilesize)_?(\d+)x(\d+)(?=_|x)")
SPLIT = re.compile(r"split|stream", re.IGNORECASE)  # along the depth as well, or in parts of tiles
FILLED = 0.8  # of the places in all waves: less, and a size that fits is worth having
MOST = 5  # waves: of more, the last is a small part
MOSTLY = 0.5  # of the products' time is like that


@rule("numbers-tile-size")
def tile_size(signals: Signals) -> Candidates:
    """Sizes of which a little less takes a whole wave less."""
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
    """How many times its tiles fill the multiprocessors, lying as they need the fewest; None where its name
    does not tell the tile."""
    told = TILE.search(product.work.family)
    if told is None or SPLIT.search(product.work.family):
        return None
    a, b = int(told[1]), int(told[2])
    tiles = min(ceil(product.m / x) * ceil(product.n / y) for x, y in ((a, b), (b, a)))
    persistent = min(
        product.work.blocks or places, places
    )  # of as many blocks as it has places, or a few less
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
            Evidence(f"products of {largest.m} × {largest.n} and the like", ms, "ms a step"),
            Evidence("waves of tiles in each", waves, ""),
            Evidence("rows that fill whole waves", float(rows_that_fit(largest, waves)), "rows"),
        ],
        changes=shrink(works, total, left / ms),
        doubt=0.2,
        confidence=0.7,
        check="a batch of as many rows as fill whole waves, and compare time a row",
        **site(works),
    )


def rows_that_fit(product: Product, waves: float) -> int:
    """The next smaller number of rows of the same product, in whole tiles."""
    told = TILE.search(product.work.family)
    tile = min(int(told[1]), int(told[2])) if told else 1
    return max(floor(product.m * floor(waves) / waves) // tile * tile, tile)
