"""The account as a waterfall, from work at its ceilings to the measured step."""

from __future__ import annotations

from typing import Any, TypedDict

from fathom.analysis.results import Part
from fathom.report import account, units
from fathom.report.page.colours import of_owner
from fathom.report.page.figure import Figure, altair
from fathom.report.page.recording import Recording, Section

ROW = 38  # pixels of a bar and the line above it
LABEL = 60  # letters
NOTE = "A finding has all the time that it would save, also what its kernels would take at their ceilings."


class Bar(TypedDict):
    """A bar of a waterfall, from `start` to `end` ms."""

    row: int
    label: str
    start: float
    end: float
    colour: str
    kind: str
    text: str


def section(recording: Recording) -> Section | None:
    """Return the waterfall; None without an account."""
    parts = recording.examination.account
    if not parts:
        return None
    rows = _rows(parts, recording.noun)
    total = rows[-1]["end"]
    table = [["Part", "ms", "%", "Owner"]]
    table += [
        [part.part, f"{part.ms:.{units.decimals(total)}f}", units.signed_share(part.ms, total), part.owner]
        for part in parts
    ]
    known = any(row["kind"] == "light" for row in rows)
    figure = Figure(
        "account",
        f"From work at its ceilings to the measured {recording.noun}"
        if known
        else f"Parts of the {recording.noun}",
        f"Waterfall of {len(rows) - 1} parts that add up to {units.duration(total)}.",
        rows,
        waterfall,
        table,
    )
    return Section("account", "Account", {}, [figure], NOTE if known else "")


def _rows(parts: list[Part], noun: str) -> list[Bar]:
    """Return the bars: each part of the account begins where the one before it ends."""
    rows: list[Bar] = []
    total, reached = sum(part.ms for part in parts), 0.0
    shown = account.shown(parts, total, every=False)
    bars = [
        (account.label(part, LABEL), part.ms, of_owner(part.owner, part.part), _kind(part)) for part in shown
    ]
    folded = account.folded([part for part in parts if part not in shown])
    bars += [(label, ms, "#b9a06a", "rest") for label, ms in folded]
    for label, ms, colour, kind in [*bars, (noun, total, "#5b6470", "total")]:
        start = 0.0 if kind == "total" else reached
        reached = start + ms
        rows.append({
            "row": len(rows), "label": label, "start": start, "end": reached, "colour": colour, "kind": kind,
            "text": f"{units.duration(ms)} · {units.signed_share(ms, total)} %",
        })  # fmt: skip
    return rows


def _kind(part: Part) -> str:
    return "light" if part.owner in ("peak", "ceiling") else "gap"


def waterfall(rows: list[Bar]) -> Any:
    """Draw bars from `start` to `end`, each with its label, text and colour."""
    alt = altair()
    base = alt.Chart(alt.Data(values=rows)).encode(y=alt.Y("row:O", axis=None))
    hover = [alt.Tooltip("label:N", title="part"), alt.Tooltip("text:N", title="time")]
    bars = base.mark_bar(height=12, yOffset=8, cornerRadius=2, minBandSize=1).encode(
        x=alt.X("start:Q", title="ms", axis=alt.Axis(tickCount=6), scale=alt.Scale(nice=False)),
        x2="end:Q",
        color=alt.Color("colour:N", scale=None),
        tooltip=hover,
    )
    names = base.mark_text(
        align="left", dy=-9, fontSize=12, limit={"expr": "max(width - 130, 90)"}, style="ink"
    )
    names = names.encode(x=alt.value(0), text="label:N")
    figures = base.mark_text(align="right", dy=-9, fontSize=12, style="ink", fontWeight=600)
    figures = figures.encode(x=alt.value({"expr": "width"}), text="text:N")
    return (bars + names + figures).properties(height=ROW * len(rows))
