"""Device work of the first device by category, and its ops by input shapes."""

from __future__ import annotations

from typing import Any, TypedDict

from fathom.analysis.results import Device
from fathom.report import units
from fathom.report.ledger import step_ms
from fathom.report.page.colours import SERIES
from fathom.report.page.figure import Figure, altair
from fathom.report.page.recording import Recording, Section
from fathom.report.views import TFLOP, labelled, spread
from fathom.units import GB

MOST = 15  # bars; the tables have all rows


class Work(TypedDict):
    """A bar: a category or an op with its input shapes."""

    label: str
    ms: float


def section(recording: Recording) -> Section | None:
    """Return the figures of the first device with work; None without one."""
    device = next((d for d in recording.examination.devices if d.categories), None)
    if device is None:
        return None
    figures = [_categories(device), *([_shapes(device)] if device.shapes else [])]
    return Section("work", "Work by category and shape", {}, figures, brief="Work")


def _categories(device: Device) -> Figure[Work]:
    total = step_ms(device)
    rows: list[Work] = [{"label": category.name, "ms": category.ms} for category in device.categories]
    table = [["Category", "ms", "%", "Runs"]]
    for category in device.categories:
        count = units.MISSING if category.count is None else f"{category.count:.3g}"
        table.append([category.name, units.duration(category.ms), units.share(category.ms, total), count])
    text = f"Bars of {len(rows)} categories of work, which sum to the ledger's work."
    return Figure("categories", "Work by category", text, rows[:MOST], _draw, table)


def _shapes(device: Device) -> Figure[Work]:
    labels = labelled(device.shapes)
    shown = list(zip(device.shapes, labels, strict=True))
    rows: list[Work] = [{"label": label, "ms": row.ms} for row, label in shown[:MOST]]
    table = [["Op and shapes", "ms", "Calls", "Median µs", "TFLOP/s", "GB/s"]]
    for row, label in shown:
        rates = spread(row.flops_per_s, TFLOP), spread(row.bytes_per_s, GB)
        median = units.significant(row.median_us)
        table.append([label, units.duration(row.ms), f"{row.count:.3g}", median, *rates])
    text = (
        f"Bars of the {len(rows)} longest ops by input shape; rates are smallest to largest of their calls."
    )
    return Figure("shapes", "Ops by input shape, in profiled steps", text, rows, _draw, table)


def _draw(rows: list[Work]) -> Any:
    alt = altair()
    order = [row["label"] for row in rows]
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(color=SERIES[0], size=12, cornerRadiusEnd=2)
        .encode(
            x=alt.X("ms:Q", title="ms", axis=alt.Axis(tickCount=6)),
            y=alt.Y("label:N", title=None, sort=order, axis=alt.Axis(labelLimit=260)),
            tooltip=["label:N", alt.Tooltip("ms:Q", format=".4~f")],
        )
        .properties(height=22 * len(rows))
    )
