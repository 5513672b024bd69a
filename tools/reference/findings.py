"""The reference of findings: every kind by its group, as `fathom explain` prints it."""

from __future__ import annotations

from fathom.diagnosis import Kind, kinds
from fathom.diagnosis.kinds.catalogue import GROUPS
from fathom.lab import techniques
from reference.markdown import block, code, fields, table, text

ABOUT = {
    "input": "The program waits for data.",
    "host": "The device waits for the program.",
    "framework": "How torch runs the program.",
    "kernels": "The device does unnecessary work, or works slowly.",
    "communication": "Ranks wait for data, or for each other.",
    "device": "The machine gives less than it should.",
    "numbers": "Sizes do not suit the hardware.",
    "serving": "The requests of a serving engine take longer than they need to.",
}
INTRODUCTION = """# Findings

A finding is a named cause of lost time: evidence, the rows of the ledger that it claims, a predicted gain
with an interval, and a remedy. {count} kinds are known. `fathom findings SOUNDING` prints those of a
recording, and `fathom explain KIND` prints the sections below.

"""


def pages() -> dict[str, str]:
    """An index of all kinds, and a page for each group."""
    groups = {group: [kind for kind in kinds().values() if kind.group == group] for group in GROUPS}
    return {"reference/findings/index.md": _index(groups)} | {
        f"reference/findings/{group}.md": _page(group, listed) for group, listed in groups.items()
    }


def _index(groups: dict[str, list[Kind]]) -> str:
    parts = [INTRODUCTION.format(count=len(kinds()))]
    for group, listed in groups.items():
        rows = ((f"[`{kind.id}`]({group}.md#{kind.id})", text(kind.title)) for kind in listed)
        parts.append(f"## {group.capitalize()}\n\n{ABOUT[group]}\n\n{table(('kind', 'problem'), rows)}")
    return "\n".join(parts)


def _page(group: str, listed: list[Kind]) -> str:
    return f"# Findings: {group}\n\n{ABOUT[group]} `fathom explain KIND` prints a section.\n\n" + "\n".join(
        _section(kind) for kind in listed
    )


def _section(kind: Kind) -> str:
    named = [techniques()[name] for name in kind.techniques]
    pairs = ", ".join(f"[{t.name}](../techniques/{t.group}.md#{t.name})" for t in named)
    rows = (
        ("Do", text(kind.action) + "."),
        ("Why", text(kind.mechanism)),
        ("How it shows", text(kind.shows)),
        ("Bounds", ", ".join(f"{bound}-bound" for bound in kind.bound)),
        ("Measured by", code(f"fathom run --what-if {kind.trial}") if kind.trial else ""),
        ("Techniques", pairs or text(kind.no_technique)),
        ("References", ", ".join(f"<{url}>" for url in kind.references)),
    )
    return (
        f"## {text(kind.title)} {{#{kind.id}}}\n\n`{kind.id}`\n\n{fields(rows)}\n{block('text', kind.remedy)}"
    )
