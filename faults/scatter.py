"""The picture of predicted against realised gains.

python -m faults.scatter    # docs/images/gains.svg, of benchmarks/results/findings.json
"""

from __future__ import annotations

import json
import math
from html import escape
from typing import Any

from faults.score import RESULTS, ROOT

PICTURE = ROOT / "docs" / "images" / "gains.svg"
SIZE, MARGIN = 560, 64
LEAST, MOST = 0.03, 1000.0  # ms
GREY, BLUE, RED = "#8a8f98", "#2563eb", "#dc2626"


def place(ms: float) -> float:
    """Pixels from the origin, on a logarithmic scale."""
    inside = min(max(ms, LEAST), MOST)
    return (SIZE - 2 * MARGIN) * math.log(inside / LEAST) / math.log(MOST / LEAST)


def at(x_ms: float, y_ms: float) -> tuple[float, float]:
    return MARGIN + place(x_ms), SIZE - MARGIN - place(y_ms)


def line(start: tuple[float, float], end: tuple[float, float], style: str) -> str:
    (x1, y1), (x2, y2) = start, end
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'


def text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(words)}</text>'


def axes() -> list[str]:
    drawn = [line(at(LEAST, LEAST), at(MOST, MOST), f'stroke="{GREY}" stroke-dasharray="4 4"')]
    for ms in (0.1, 1.0, 10.0, 100.0, 1000.0):
        light = f'stroke="{GREY}" stroke-opacity="0.25"'
        drawn += [line(at(ms, LEAST), at(ms, MOST), light), line(at(LEAST, ms), at(MOST, ms), light)]
        x, y = at(ms, LEAST)[0], at(LEAST, ms)[1]
        drawn.append(text(x, SIZE - MARGIN + 18, f"{ms:g}", 'text-anchor="middle"'))
        drawn.append(text(MARGIN - 8, y + 4, f"{ms:g}", 'text-anchor="end"'))
    middle = SIZE / 2
    turned = f'text-anchor="middle" transform="rotate(-90 16 {middle})"'
    drawn.append(text(middle, SIZE - 16, "realised: faulty step − mended step, ms", 'text-anchor="middle"'))
    drawn.append(text(16, middle, "predicted from the faulty recording alone, ms", turned))
    return drawn


def point(gain: dict[str, Any]) -> list[str]:
    """The prediction with its interval, blue where the outcome lies inside."""
    realised, low, high = gain["realised_ms"], gain["low_ms"], gain["high_ms"]
    colour = BLUE if low <= realised <= high else RED
    x, y = at(realised, gain["predicted_ms"])
    said = f"{gain['case']}: predicted {gain['predicted_ms']:.2f} ms, realised {realised:.2f} ms"
    bar = line(
        at(realised, low), at(realised, high), f'stroke="{colour}" stroke-opacity="0.4" stroke-width="2"'
    )
    dot = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"><title>{escape(said)}</title></circle>'
    return [bar, dot]


def picture(gains: list[dict[str, Any]]) -> str:
    """The SVG of all gains that were predicted, and came true at all."""
    shown = [gain for gain in gains if gain["predicted_ms"] is not None and gain["realised_ms"] > 0]
    title = f"Gains of {len(shown)} mended programs on an H200; bars: the stated intervals"
    parts = [*axes(), text(MARGIN, 28, title, 'font-size="12" font-weight="600"')]
    parts += [part for gain in shown for part in point(gain)]
    font = 'font-family="sans-serif" font-size="11"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE}" {font}>'
    return "\n".join([head, f'<rect width="{SIZE}" height="{SIZE}" fill="white"/>', *parts, "</svg>\n"])


if __name__ == "__main__":
    PICTURE.write_text(picture(json.loads(RESULTS.read_text())["gains"]))
    print(PICTURE)
