"""The reference of techniques: idea and cost of each, and what it gained on which chip."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from fathom.diagnosis import kinds
from fathom.lab import GROUPS, Technique, techniques
from fathom.units import NS_PER_S
from reference.markdown import ROOT, fields, table, text

Results = dict[str, dict[str, Any]]
ABOUT = {
    "memory": "Save memory traffic",
    "compute": "Save arithmetic",
    "schedule": "Use the device's time",
    "framework": "Save the framework's work",
    "input": "Feed the device",
    "ranks": "Train and serve on several GPUs",
}
INTRODUCTION = """# Techniques

The lab has {count} optimisations as runnable pairs: a plain and a tuned form that compute the same. `fathom
lab run NAME` proves a pair on your machine and keeps the result; the results here were taken on {chips}
(`benchmarks/results/lab.json`).

    fathom lab list
    fathom lab show coalescing
    fathom lab run coalescing

The ratio is the tuned form's time over the plain form's, with its 99 % confidence interval. The last two
columns are the shares of the ceiling that each form reaches, where its work is known.

"""
NOT_JUDGED = "not judged there"


def pages() -> dict[str, str]:
    """An index with the results of all techniques, and a page for each group."""
    results = _results()
    groups = {name: [t for t in techniques().values() if t.group == name] for name in GROUPS}
    return {"reference/techniques/index.md": _index(groups, results)} | {
        f"reference/techniques/{name}.md": _page(name, listed, results) for name, listed in groups.items()
    }


def _index(groups: dict[str, list[Technique]], results: Results) -> str:
    chips = ", ".join(sorted({f"an {row['gpu']}" for row in results.values()}))
    parts = [INTRODUCTION.format(count=len(techniques()), chips=chips)]
    for group, listed in groups.items():
        rows = [_row(technique, results.get(technique.name)) for technique in listed]
        headers = ("technique", "saves", "verdict", "ratio>", "plain>", "tuned>")
        parts.append(f"## {ABOUT[group]}\n\n{table(headers, rows)}")
    return "\n".join(parts)


def _page(group: str, listed: list[Technique], results: Results) -> str:
    sections = (_section(technique, results.get(technique.name)) for technique in listed)
    return f"# Techniques: {group}\n\n{ABOUT[group]}.\n\n" + "\n".join(sections)


def _results() -> Results:
    """The kept verdicts by technique; those of an earlier state of its code are kept too, with their date."""
    rows = json.loads((ROOT / "benchmarks" / "results" / "lab.json").read_text(encoding="utf-8"))
    return {row["technique"]: row for row in rows}


def _row(technique: Technique, result: dict[str, Any] | None) -> tuple[str, ...]:
    name = f"[`{technique.name}`]({technique.group}.md#{technique.name})"
    if result is None or result["ratio"] is None:
        verdict = result["verdict"] if result else NOT_JUDGED
        return name, text(technique.header.saves), verdict, "", "", ""
    plain, tuned = _shares(result)
    return name, text(technique.header.saves), result["verdict"], _ratio(result), plain, tuned


def _ratio(result: dict[str, Any]) -> str:
    low, high = result["interval"]
    return f"{result['ratio']:.3f} ({low:.3f}–{high:.3f})"


def _shares(result: dict[str, Any]) -> tuple[str, str]:
    """The shares of the ceiling, under the condition of the cache that decided."""
    deciding = next((t for t in result["timings"] if t["ratio"] == result["ratio"]), None)
    if deciding is None:
        return "", ""
    ceilings = [deciding[side].get("ceiling") for side in ("plain", "tuned")]
    plain, tuned = (f"{100 * c['fraction']:.0f} %" if c else "" for c in ceilings)
    return plain, tuned


def _section(technique: Technique, result: dict[str, Any] | None) -> str:
    header = technique.header
    named = [kind for kind in kinds().values() if technique.name in kind.techniques]
    findings = ", ".join(f"[`{kind.id}`](../findings/{kind.group}.md#{kind.id})" for kind in named)
    rows = (
        ("Idea", text(header.idea)),
        ("Costs", text(header.cost)),
        ("Does not pay", text(header.not_when)),
        ("No gain", text(header.no_gain)),
        ("Shows in", ", ".join(f"{text(s.what)}: {text(s.plain)} → {text(s.tuned)}" for s in header.shows)),
        ("Findings", findings or text(header.no_finding)),
        ("Parameters", text(header.tried)),
        ("Measured", _measured(result) if result and result["ratio"] else ""),
    )
    place = f"`{technique.name}` in `lab/operations/{technique.path.name}`"
    return f"## {text(header.title)} {{#{technique.name}}}\n\n{place}\n\n{fields(rows)}"


def _measured(result: dict[str, Any]) -> str:
    day = datetime.fromtimestamp(result["taken_ns"] / NS_PER_S, UTC).date()
    versions = result["versions"]
    outcome = f"{result['verdict']}, {_ratio(result)} of the plain form's time"
    return f"{outcome}; {result['gpu']}, torch {versions['torch']}, driver {versions['driver']}, {day}."
