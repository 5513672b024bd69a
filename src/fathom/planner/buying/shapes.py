"""Shapes of a model that suit a chip: tiles, waves and alignment, and the nearest ones that gain."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import msgspec

from fathom.planner.hardware import Hardware
from fathom.planner.workload import Attention, Dense, Experts, Model, matmuls

_TILES = ((128, 256), (256, 128), (128, 128), (64, 128), (64, 64))
_RATES = (1.0, 1.0, 0.93, 0.75, 0.6)  # of small tiles, which reload operands more often; assumed
_LEAST = 0.02


class Advice(msgspec.Struct, frozen=True):
    """A size that a nearby one would beat: the gain is in time per FLOP of the whole model."""

    what: str
    size: int
    nearest: int
    gain: float
    why: str


def efficiency(m: int, n: int, k: int, units: int) -> float:
    """Return the useful share of a product's time on `units` multiprocessors, with the best tile."""
    return max(_tiled(m, n, tile, units) * rate for tile, rate in zip(_TILES, _RATES, strict=True)) * (
        k / (64 * math.ceil(k / 64)) * (1.0 if n % 8 == 0 and k % 8 == 0 else 0.5)
    )


def _tiled(m: int, n: int, tile: tuple[int, int], units: int) -> float:
    tiles = math.ceil(m / tile[0]) * math.ceil(n / tile[1])
    waves = math.ceil(tiles / units)
    return m * n / (waves * units * tile[0] * tile[1])


def seconds_per_flop(model: Model, tokens: int, tp: int, units: int) -> float:
    """Return the time of all products over their FLOPs, in units of the peak's."""
    spent = flops = 0.0
    for n, k, count, m in _products(model, tokens, tp):
        work = 2.0 * m * n * k * count
        spent += work / efficiency(m, n, k, units)
        flops += work
    return spent / flops


def _products(model: Model, tokens: int, tp: int) -> Iterator[tuple[int, int, int, int]]:
    for block in model.blocks:
        for weight in matmuls(block, model.hidden):
            k, n = (weight.k, math.ceil(weight.n / tp)) if weight.split == "column" else (weight.k, weight.n)
            k = math.ceil(k / tp) if weight.split == "row" else k
            yield n, k, block.count * weight.count, max(1, round(tokens * weight.share))
    yield math.ceil(model.vocab / tp), model.hidden, 1, tokens


def advise(model: Model, hardware: Hardware, tokens: int = 8192, tp: int = 1) -> list[Advice]:
    """Return sizes for which a nearby value gains, most first."""
    units = int(hardware.figures["sms"].value) if "sms" in hardware.figures else 132
    before = seconds_per_flop(model, tokens, tp, units)
    advice = []
    for what, size, step, having in _sizes(model):
        best = _best(size, step, having, tokens, tp, units)
        gain = 1 - best[1] / before
        if gain > _LEAST and best[0] != size:
            advice.append(Advice(what, size, best[0], gain, _why(size, tp, units)))
    return sorted([*advice, *_rules(model, tp)], key=lambda a: -a.gain)


def _best(
    size: int, step: int, having: Callable[[int], Model], tokens: int, tp: int, units: int
) -> tuple[int, float]:
    """Return the value within 4 % (or one step) whose time per FLOP is the least; smaller changes first."""
    reach = max(step, round(0.04 * size / step) * step)
    base = size // step * step
    near = sorted(set(range(max(step, base - reach), base + reach + step, step)), key=lambda v: abs(v - size))
    scored = [(v, seconds_per_flop(having(v), tokens, tp, units)) for v in near]
    least = min(score for _, score in scored)
    return next(pair for pair in scored if pair[1] <= least * 1.002)


def _sizes(model: Model) -> Iterator[tuple[str, int, int, Callable[[int], Model]]]:
    yield "vocabulary", model.vocab, 128, lambda v: replace(model, vocab=v)
    first = model.blocks[-1]
    if isinstance(first.mlp, (Dense, Experts)):
        yield (
            "width of the MLP" if isinstance(first.mlp, Dense) else "width of experts",
            first.mlp.ffn,
            64,
            _with_ffn(model),
        )
    yield "hidden size", model.hidden, 128, lambda v: replace(model, hidden=v)


def _with_ffn(model: Model) -> Callable[[int], Model]:
    kind = type(model.blocks[-1].mlp)

    def having(value: int) -> Model:
        blocks = tuple(
            replace(b, mlp=replace(b.mlp, ffn=value)) if type(b.mlp) is kind else b for b in model.blocks
        )
        return replace(model, blocks=blocks)

    return having


def _rules(model: Model, tp: int) -> Iterator[Advice]:
    """Yield sizes that kernels and layouts refuse or run slowly, whatever the tile."""
    for mixer in {block.mixer for block in model.blocks}:
        if isinstance(mixer, Attention):
            if mixer.heads % tp:
                nearest = tp * max(1, round(mixer.heads / tp))
                yield Advice(
                    "heads",
                    mixer.heads,
                    nearest,
                    0.0,
                    f"tp {tp} does not divide them, so the layout is refused",
                )
            if mixer.head_dim not in (64, 128, 256):
                nearest = min((64, 128, 256), key=lambda d: abs(d - mixer.head_dim))
                idle = 1 - mixer.head_dim / (64 * math.ceil(mixer.head_dim / 64))
                why = f"fused attention pads it: {100 * idle:.0f} % of its tile is idle"
                yield Advice("head size", mixer.head_dim, nearest, 0.0, why)
    for mlp in {block.mlp for block in model.blocks}:
        if isinstance(mlp, Experts) and mlp.experts % 8:
            nearest = 8 * max(1, round(mlp.experts / 8))
            yield Advice("experts", mlp.experts, nearest, 0.0, "a node of 8 GPUs cannot share them equally")


def _why(size: int, tp: int, units: int) -> str:
    part = size / tp
    if part != int(part):
        return f"tp {tp} does not divide it"
    if part % 8:
        return "rows are not aligned to 16 bytes, so vector loads are narrower"
    if part % 128:
        return "the last tile of 128 is partly idle"
    return f"the last wave over {units} multiprocessors is partly idle"
