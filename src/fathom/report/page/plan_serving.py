"""A plan of serving as a page: fleets, latencies, the ledger of an iteration, and the sensitivity."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

from fathom.planner.serving import ServingPlan
from fathom.report import units
from fathom.report.page.account import Bar
from fathom.report.page.figure import Figure, altair
from fathom.report.page.page import rendered, write
from fathom.report.page.plan import Moved, bar, sensitivity, waterfall_of
from fathom.report.page.recording import Section, Top
from fathom.report.plan_serving import fleet_words, headline, setting
from fathom.units import GIB, MS_PER_S

_LATENCIES = {"ttft": "TTFT, mean", "ttft_p50": "TTFT, median", "ttft_p99": "TTFT, p99", "tpot": "TPOT, mean",
              "tpot_p50": "TPOT, median", "tpot_p99": "TPOT, p99", "end_to_end": "whole request"}  # fmt: skip


class Latency(TypedDict):
    """A planned latency in ms, with its interval."""

    name: str
    ms: float
    low: float
    high: float


class Fleet(TypedDict):
    """A fleet of the front."""

    fleet: str
    gpus: int
    tpot: float  # ms
    ttft: str


def save_serving_plan(plan: ServingPlan, path: Path) -> None:
    """Write the plan as one HTML file that loads nothing. Raises BadInputError if that fails."""
    top = Top(headline(plan), [setting(plan)], _tiles(plan), reason=" ".join(plan.notes))
    sections = [
        Section("plan-latencies", "Latencies", {}, [_latencies(plan)]),
        Section("plan-ledger", "Ledger", {}, [_ledger(plan)]),
        Section("plan-sensitivity", "Sensitivity", {}, [_sensitivity(plan)]),
    ]
    if len(plan.choices) > 1:
        about = f"Fleets {plan.searched}: the best of each layout."
        sections.insert(1, Section("plan-front", "Front", {}, [_front(plan)], about))
    write(rendered("Serving plan", top, sections), path)


def _tiles(plan: ServingPlan) -> list[tuple[str, str]]:
    tiles = [
        (units.duration(MS_PER_S * plan.figures["ttft"].value), "TTFT"),
        (units.duration(MS_PER_S * plan.figures["tpot"].value), "TPOT"),
        (str(plan.gpus), "GPUs"),
        (f"{plan.weight_bytes / GIB:.1f}\u00a0GiB", "weights per GPU"),
    ]
    cost = plan.dollars_per_million_tokens
    return tiles + ([(f"${units.significant(cost.value)}", "per million tokens")] if cost else [])


def _latencies(plan: ServingPlan) -> Figure[Latency]:
    rows: list[Latency] = []
    for name, label in _LATENCIES.items():
        q = plan.figures[name]
        low, high = q.interval
        rows.append({"name": label, "ms": MS_PER_S * q.value, "low": MS_PER_S * low, "high": MS_PER_S * high})
    table = [["Latency", "Planned", "90 % interval"]]
    table += [
        [
            r["name"],
            units.duration(r["ms"]),
            f"{units.duration(r['low'])} to {units.duration(r['high'])}",
        ]
        for r in rows
    ]
    about = "Latencies that clients see, with the interval that holds the truth in nine cases of ten."
    return Figure("latencies", "Latencies of clients", about, rows, _intervals, table)


def _intervals(rows: list[Latency]) -> Any:
    alt = altair()
    base = alt.Chart(alt.Data(values=rows)).encode(y=alt.Y("name:N", title=None, sort=None))
    scale = alt.Scale(type="log")
    span = base.mark_rule(strokeWidth=3, opacity=0.5).encode(
        x=alt.X("low:Q", title="ms", scale=scale), x2="high:Q"
    )
    return (span + base.mark_point(filled=True, size=60).encode(x=alt.X("ms:Q", scale=scale))).properties(
        height=24 * len(rows)
    )


def _front(plan: ServingPlan) -> Figure[Fleet]:
    rows: list[Fleet] = [
        {"fleet": fleet_words(c), "gpus": c.gpus, "tpot": MS_PER_S * c.tpot_s,
         "ttft": units.duration(MS_PER_S * c.ttft_s)}
        for c in plan.choices
    ]  # fmt: skip
    table = [["Fleet", "GPUs", "TTFT", "TPOT"]]
    table += [[r["fleet"], str(r["gpus"]), r["ttft"], units.duration(r["tpot"])] for r in rows]
    return Figure("front", f"Fleets {plan.searched}", "Time per token against GPUs.", rows, _points, table)


def _points(rows: list[Fleet]) -> Any:
    alt = altair()
    chart = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("gpus:Q", title="GPUs", scale=alt.Scale(type="log", padding=40)),
        y=alt.Y("tpot:Q", title="ms per output token", scale=alt.Scale(zero=False, padding=20)),
        tooltip=[alt.Tooltip("fleet:N"), alt.Tooltip("ttft:N")],
    )
    names = chart.mark_text(dy=-10, style="ink").encode(text="fleet:N")
    return (chart.mark_point(filled=True, size=60) + names).properties(height=240)


def _ledger(plan: ServingPlan) -> Figure[Bar]:
    rows: list[Bar] = []
    for name, seconds in sorted(plan.iteration.items(), key=lambda part: -part[1]):
        if seconds > 0:
            rows.append(bar(rows, name, MS_PER_S * seconds))
    about = f"Parts of a decode iteration of {plan.batch} sequences."
    return waterfall_of(rows, "iteration", MS_PER_S * sum(plan.iteration.values()), about)


def _sensitivity(plan: ServingPlan) -> Figure[Moved]:
    about = "Change of the time per output token from the low to the high end of each assumption."
    return sensitivity(plan.sensitivity, "Which assumption moves TPOT most", about, "TPOT")
