"""Matmuls in float32: without tensor cores, or where bfloat16 would suffice."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import family_totals, largest_families, mended, ms_of, rates_of
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Product, Signals, Work
from fathom.diagnosis.signals.numbers import product_of
from fathom.units import MS_PER_S

SIMT = re.compile(r"sgemm|simt|_ffma|f32f32_f32f32|gemv2?T|gemmSN", re.IGNORECASE)
TENSOR = re.compile(r"tf32|tensorop|1688|wgmma|hmma", re.IGNORECASE)
# NAMED: float32 without tensor cores, by the name alone. MULTIPLIES: any matrix product or convolution.
# The names are all that is known of ops with many kernels or without shapes.
NAMED = re.compile(r"sgemm|scudnn|(dgrad|wgrad)\w*engine<float|winograd\w*<float|f32f32_f32f32|_ffma")
MULTIPLIES = re.compile(r"gemm|cudnn_\w+_\w?cudnn|[dw]grad|winograd|xmma|cutlass|nvjet|conv", re.IGNORECASE)
FLOAT = re.compile(r"<float\b|float>")
ABOVE = 1.1  # of the ceiling without tensor cores: a faster product uses them
LARGE = 64  # least rows, columns and depth of a product that gains from tensor cores
MOSTLY = 0.5  # of the products: below it, the program chose float32 for a part
REACHED = 0.9  # of the bfloat16 ceiling, by large products
UNSHAPED = 0.4  # of the time with tensor cores, if sizes are unknown: small products gain little
HALF = 0.35  # of the time in float16 without TF32: usual convolutions reach a part of the eightfold rate
MEMORY = 0.55  # of the time that moving an activation takes, with half the bytes
CONVOLVES = re.compile(r"cudnn|conv|[dw]grad|winograd", re.IGNORECASE)
# TF32 has one switch for matrix products and one for convolutions: each names its action and its code.
SWITCHES = {
    "products": ("Allow TF32 for float32 matmuls", 'torch.set_float32_matmul_precision("high")'),
    "convolutions": (
        "Allow TF32 for float32 convolutions",
        "torch.backends.cudnn.allow_tf32 = True    # the default, which the program changed",
    ),
}
FLOAT16 = (
    "Run the model in float16 with autocast and a gradient scaler",
    'scaler = torch.amp.GradScaler("cuda")    # tensor cores of this chip do not multiply bfloat16\n'
    'with torch.autocast("cuda", torch.float16):\n'
    "    loss = model(batch)\n"
    "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()",
)


@rule("kernels-tf32-off", "kernels-no-mixed-precision")
def precision(signals: Signals) -> Candidates:
    """Choose the kind by the current computation of products and the device's capabilities."""
    works = signals["kernels.work"]
    named = _named(works)
    if not named:
        signals["numbers.products"]  # neither names nor shapes: abstains
    products = signals.get("numbers.products").value or []
    rates = rates_of(signals)
    singles = [product for product in products if product.dtype == "fp32" and _large(product)]
    plain = [product for product in singles if _without_tensor_cores(product, rates)]
    ordinary = [*(product.work for product in plain), *named]
    if signals.get("device.tf32").value is False:
        if ms_of(ordinary) > MOSTLY * ms_of(_multiplying(works)):  # tensor cores support only float16
            action, remedy = FLOAT16
            mixed = _mixed(signals, ordinary, HALF)
            yield replace(mixed, doubt=0.4, confidence=0.8, action=action, remedy=remedy)
        return
    if ordinary:
        factor = _on_tensor_cores(plain, named, rates)
        action, remedy = _switches(ordinary)
        yield replace(_candidate(signals, "kernels-tf32-off", ordinary, factor), action=action, remedy=remedy)
    sized = [product.work for product in products]
    others = [work for work in _multiplying(works) if work not in sized]
    tensor, convolved = [product for product in singles if product not in plain], _convolved(others)
    wide = [*(product.work for product in tensor), *convolved]
    if ms_of(wide) > MOSTLY * ms_of([*sized, *others]):
        yield _mixed(signals, wide, _in_bfloat16(tensor, convolved, rates))


def _switches(works: list[Work]) -> tuple[str, str]:
    """Return the action and the code for the switches that apply; both empty, as the kind's, if both do."""
    convolved = [work for work in works if CONVOLVES.search(work.family) or "convolution" in work.op]
    if 0 < len(convolved) < len(works):
        return "", ""
    return SWITCHES["convolutions" if convolved else "products"]


def _named(works: list[Work]) -> list[Work]:
    """Return products and convolutions without shapes, if most of them run without tensor cores."""
    every = _multiplying(works)
    mine = [work for work in every if NAMED.search(work.family) and not TENSOR.search(work.family)]
    enough = ms_of(mine) > MOSTLY * ms_of(every)
    return [work for work in mine if enough and product_of(work) is None]


def _convolved(works: list[Work]) -> list[Work]:
    """Return float32 convolutions on tensor cores, since cuDNN uses TF32 by default."""
    mine = [work for work in works if "convolution" in work.op and TENSOR.search(work.family)]
    return [work for work in mine if work.types[:1] == ["float"]]


def _multiplying(works: list[Work]) -> list[Work]:
    """Return products and convolutions, identified by kernel name."""
    return [work for work in works if work.entry == Entry.COMPUTE and MULTIPLIES.search(work.family)]


def _on_tensor_cores(plain: list[Product], named: list[Work], rates: dict[str, float]) -> float:
    """Return the share of the time that both take on tensor cores."""
    known, unknown = ms_of(product.work for product in plain), ms_of(named)
    ratio = _ratio(rates, "matmul.fp32", "matmul.tf32", 0.2)
    return (ratio * known + UNSHAPED * unknown) / ((known + unknown) or 1.0)


def _mixed(signals: Signals, products: list[Work], factor: float) -> Candidate:
    works = [work for work in signals["kernels.work"] if work.entry == Entry.COMPUTE]
    floats = [work for work in works if FLOAT.search(work.family) and "Optimizer" not in work.path]
    around = [work for work in floats if work not in products]
    return _candidate(signals, "kernels-no-mixed-precision", products, factor, *_halved(signals, around))


def _halved(signals: Signals, around: list[Work]) -> Iterator[tuple[list[Work], float]]:
    """Yield the work on activations with the share of its time that half the bytes leave.

    Only the time that moving the bytes takes at the memory's ceiling shrinks: norms over few channels,
    for example, wait for other things. If the ceiling or a family's bytes are unknown, all of it does.
    """
    total = family_totals(around)
    moving = _moving(signals)
    for family in largest_families(total):
        mine = [work for work in around if work.family == family]
        yield mine, 1.0 - (1.0 - MEMORY) * moving.get(family, 1.0)


def _moving(signals: Signals) -> dict[str, float]:
    """Return the share of each family's time that its bytes need at the memory's ceiling, if known."""
    memory = rates_of(signals).get("memory")
    if not memory:
        return {}
    known = [row for row in signals["step.ledger"] if row.entry == Entry.COMPUTE and row.bytes and row.ms]
    return {row.detail: min(MS_PER_S * row.bytes / memory / (row.own_ms or row.ms), 1.0) for row in known}


def _large(product: Product) -> bool:
    return min(product.sides) >= LARGE


def _without_tensor_cores(product: Product, rates: dict[str, float]) -> bool:
    ceiling, seconds = rates.get("matmul.fp32"), product.work.ms / MS_PER_S
    if ceiling and seconds > 0 and product.flops / seconds > ABOVE * ceiling:
        return False
    return bool(SIMT.search(product.work.family)) and not TENSOR.search(product.work.family)


def _on_cores(work: Work) -> bool:
    plain = SIMT.search(work.family) or NAMED.search(work.family)
    return not plain or TENSOR.search(work.family) is not None


def _in_bfloat16(singles: list[Product], convolved: list[Work], rates: dict[str, float]) -> float:
    """Return the share of the time in bfloat16: the ratio of ceilings, or less if large products reach it.

    Convolutions use the ratio: their FLOPs depend on the algorithm.
    """
    ratio = _ratio(rates, "matmul.tf32", "matmul.bf16", 0.5)
    rate, now = rates.get("matmul.bf16"), ms_of(product.work for product in singles)
    flops = sum(product.flops for product in singles)
    least = min(ratio, MS_PER_S * flops / (REACHED * rate) / now) if rate and now > 0 else ratio
    others = ms_of(convolved)
    return (least * now + ratio * others) / ((now + others) or 1.0)


def _ratio(rates: dict[str, float], slow: str, fast: str, otherwise: float) -> float:
    return min(rates[slow] / rates[fast], 1.0) if rates.get(slow) and rates.get(fast) else otherwise


def _candidate(
    signals: Signals, kind: str, works: list[Work], factor: float, *more: tuple[list[Work], float]
) -> Candidate:
    how = "TF32 on tensor cores" if any(map(_on_cores, works)) else "float32 without tensor cores"
    return mended(
        signals,
        (works, factor),
        *more,
        kind=kind,
        evidence=[
            Evidence(how, ms_of(works), "ms per step"),
            Evidence("share of this time with tensor cores and the narrower dtype", 100 * factor, "%"),
        ],
        check="fathom prove the program with the setting against the program without it",
    )
