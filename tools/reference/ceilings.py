"""The reference of ceilings: each gauge, with the figure measured on an H200."""

from __future__ import annotations

import json

from fathom.gauges.catalogue import BYTES, GAUGES, GPU, HOST, LINKS, OPS, RATE, TIME, Gauge, scope
from reference.markdown import ROOT, table

TITLES = {HOST: "Host", GPU: "One GPU", LINKS: "Links between GPUs"}
SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
SMALL = ((1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
INTRODUCTION = """# Ceilings

A ceiling is a limit that was measured on this machine; work is compared with it, not with the datasheet.
`fathom run` measures a quick set once per machine, `fathom machine measure --full` all of them. The
datasheet's figure is shown beside each.

    fathom machine measure
    fathom machine measure --only copy

`pace.*` and `host.pace.*` are the host's time for an operator of the forward pass, the backward pass and the
optimizer, and for a parameter of an optimizer that handles all at once (`foreach`, `fused`).

The last column is {chips} (two runs in a row, the first one shown; `benchmarks/results/gauges.json`).

"""


def pages() -> dict[str, str]:
    """One page with every ceiling."""
    measured = json.loads((ROOT / "benchmarks" / "results" / "gauges.json").read_text(encoding="utf-8"))
    parts = [INTRODUCTION.format(chips="an " + measured["gpus"][0])]
    for kind, title in TITLES.items():
        rows = [_row(gauge, measured["ceilings"]) for gauge in GAUGES if scope(gauge.id) == kind]
        headers = ("ceiling", "unit", "duration>", "set", "measured>")
        parts.append(f"## {title}\n\n{table(headers, rows)}")
    return {"reference/ceilings.md": "\n".join(parts)}


def _row(gauge: Gauge, measured: dict[str, dict[str, list[float]]]) -> tuple[str, str, str, str, str]:
    known = measured.get(gauge.id) or next(
        (v for k, v in measured.items() if k.startswith(f"{gauge.id} ")), None
    )
    figure = scaled(known["values"][0], gauge.unit) if known else "—"
    quick = "quick" if gauge.quick else "full"
    return f"`{gauge.id}`", gauge.unit, f"{gauge.seconds:g} s", quick, figure


def scaled(value: float, unit: str) -> str:
    """Three digits with a prefixed unit."""
    if unit == TIME:
        factor, name = next((row for row in SMALL if value >= row[0]), SMALL[-1])
        return f"{value / factor:.3g} {name}"
    assert unit in (RATE, BYTES, OPS), unit
    factor, prefix = next(row for row in SCALES if value >= row[0])
    return f"{_digits(value / factor)} {prefix}{unit}"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
