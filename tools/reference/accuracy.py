"""The page of accuracy: every bar of docs/bars.toml with its figure, command and commit."""

from __future__ import annotations

import json
import re

import tomllib

from reference.markdown import ROOT, block, table, text

INTRODUCTION = """# Accuracy

Every claim of the project, with its measurement and the command that repeats it: {met} are met, {partly} in
part, {open} are not met or not shown. Ratios come with a 95 % interval in brackets. Figures were measured
on an NVIDIA H200 unless they name another machine. This page is made of `docs/bars.toml`, results are in
`benchmarks/results`, and the commit is the state of the code that was measured.

"""
OTHERS = ROOT / "benchmarks" / "results" / "plan_others.json"  # of `python -m benchmarks.plan.others`
PLANS = "plans: "  # begins the title of the part that the table of other planners follows
_PART = re.compile(r"^# -+ (.+)$", re.M)


def pages() -> dict[str, str]:
    """One page with every bar."""
    source = (ROOT / "docs" / "bars.toml").read_text(encoding="utf-8")
    bars = [bar for _, listed in parts(source) for bar in listed]
    states = [_state(bar["state"]) for bar in bars]
    counts = {name: states.count(name) for name in ("met", "partly", "open")}
    body = [INTRODUCTION.format(**counts)]
    for title, listed in parts(source):
        body.append(f"## {title[:1].upper()}{title[1:]}\n")
        body += [_section(bar) for bar in listed]
        body += [_other_planners()] if title.startswith(PLANS) else []
    return {"accuracy.md": "\n".join(body)}


def parts(source: str) -> list[tuple[str, list[dict[str, str]]]]:
    """The bars under each heading of the file."""
    pieces = _PART.split(source)
    return [
        (title, tomllib.loads(rows)["bar"]) for title, rows in zip(pieces[1::2], pieces[2::2], strict=True)
    ]


def _state(state: str) -> str:
    if state == "met":
        return "met"
    return "partly" if state.startswith("met") else "open"


def _sentence(words: str) -> str:
    """Begin with a capital, unless the first word is a name of a program or file."""
    first = words.split()[0]
    return words if "_" in first or "/" in first else words[:1].upper() + words[1:]


def _section(bar: dict[str, str]) -> str:
    mark = {"met": "success", "partly": "warning", "open": "failure"}[_state(bar["state"])]
    lines = [f"### {bar['id']}", "", text(bar["text"]), "", f'!!! {mark} "{bar["state"].capitalize()}"', ""]
    lines += [f"    {text(_sentence(bar['figure']))}", ""]
    commands = "\n".join(part.strip() for part in bar["command"].split(";"))
    return "\n".join(lines) + "\n" + block("sh", commands) + f"\nCommit `{bar['commit']}`\n"


def _other_planners() -> str:
    """A table of the errors of other planners beside ours."""
    rows = json.loads(OTHERS.read_text(encoding="utf-8"))["table"]
    cells = [[text(words) for words in row.values()] for row in rows]
    headers = ("Planner", "Figure", "Runs", "Its error", "Fathom's error")
    command = block("sh", "python -m benchmarks.plan.others")
    return "\n".join(["### Other planners", "", table(headers, cells), command])
