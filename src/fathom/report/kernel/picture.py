"""A picture of samples around a launch: kernels by stream, then counters, on one time axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from fathom.report import units
from fathom.units import NS_PER_MS

if TYPE_CHECKING:
    from fathom.analysis.folding import Excerpt

WIDTH, LEFT, RIGHT = 960, 190, 20
LANE, ROW, GAP = 22, 64, 14
_INK, _PALE, _OWN, _OTHER = "#222", "#ddd", "#d9480f", "#adb5bd"
_LINE = "#1864ab"
_WANTED = (
    "sm__cycles_active", "sm__pipe_tensor_cycles_active_realtime", "sm__inst_executed_realtime",
    "tpc__warps_active_shader_cs_realtime", "dramc__read_throughput", "dramc__write_throughput",
    "lts__t_sector_throughput",
)  # fmt: skip
_MOST = 7


def picture(excerpt: Excerpt, family: str, title: str, wanted: Sequence[str] = _WANTED) -> str:
    """Return the excerpt as SVG, with its `wanted` counters, or the first ones if it has none of these."""
    names = [name for name in wanted if name in excerpt.values] or list(excerpt.values)
    names = names[:_MOST]
    streams = excerpt.kernels["stream"].fill_null(-1).unique().sort().to_list()
    top = 40 + len(streams) * (LANE + 4) + GAP
    height = top + len(names) * (ROW + GAP) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="11" fill="{_INK}">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        _text(LEFT, 20, title, 'font-size="13" font-weight="bold"'),
        *_lanes(excerpt, family, streams),
    ]
    for place, name in enumerate(names):
        parts += _row(excerpt, name, top + place * (ROW + GAP))
    parts += _axis(excerpt, height - 22)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(excerpt: Excerpt, ns: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * ns / excerpt.length_ns


def _text(x: float, y: float, words: str, more: str = "") -> str:
    plain = "".join(letter for letter in words if letter.isprintable())
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(plain)}</text>'


def _lanes(excerpt: Excerpt, family: str, streams: list[int]) -> Iterator[str]:
    """Yield kernels as boxes, one lane per stream; kernels of the family are highlighted."""
    for place, stream in enumerate(streams):
        yield _text(LEFT - 8, 40 + place * (LANE + 4) + 15, f"stream {stream}", 'text-anchor="end"')
    for row in excerpt.kernels.iter_rows(named=True):
        lane = streams.index(-1 if row["stream"] is None else row["stream"])
        x, y = _x(excerpt, row["start"]), 40 + lane * (LANE + 4)
        width = max(_x(excerpt, row["end"]) - x, 0.6)
        colour = _OWN if row["label"] == family else _OTHER
        name = escape("".join(letter for letter in row["label"] if letter.isprintable()))
        box = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="{LANE}" fill="{colour}"'
        yield f"<rect {box}><title>{name}</title></rect>"
        if width > 60:
            yield _text(x + 4, y + 15, units.shorten(row["label"], int(width / 6.5)), 'fill="white"')


def _row(excerpt: Excerpt, name: str, top: float) -> Iterator[str]:
    """Yield one counter as a step line from 0 to 100 %, with gaps where it was not sampled."""
    bottom = top + ROW
    box = f'x="{LEFT}" y="{top}" width="{WIDTH - LEFT - RIGHT}" height="{ROW}"'
    yield f'<rect {box} fill="none" stroke="{_PALE}"/>'
    short = units.shorten(name.replace("_realtime", ""), 30)
    yield _text(LEFT - 8, top + 14, short, 'text-anchor="end" font-size="10"')
    yield _text(LEFT - 8, bottom - 2, "0 to 100 %", f'text-anchor="end" font-size="9" fill="{_OTHER}"')
    points: list[str] = []
    for start, end, value in zip(excerpt.starts, excerpt.ends, excerpt.values[name], strict=True):
        if value != value:  # not a number
            yield from _line(points)
            points = []
            continue
        y = bottom - ROW * min(max(float(value), 0.0), 100.0) / 100
        points += [f"{_x(excerpt, start):.1f},{y:.1f}", f"{_x(excerpt, end):.1f},{y:.1f}"]
    yield from _line(points)


def _line(points: list[str]) -> Iterator[str]:
    if points:
        yield f'<polyline points="{" ".join(points)}" fill="none" stroke="{_LINE}" stroke-width="1.2"/>'


def _axis(excerpt: Excerpt, y: float) -> Iterator[str]:
    """Yield five ticks of the time axis."""
    for part in range(6):
        ns = excerpt.length_ns * part / 5
        yield _text(_x(excerpt, ns), y + 12, units.duration(ns / NS_PER_MS), 'text-anchor="middle"')
