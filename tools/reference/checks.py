"""The reference of checks of the machine, group by group."""

from __future__ import annotations

from fathom.machine.checks import GROUPS, Check, checks
from reference.markdown import block, fields, table, text

ABOUT = {
    "gpu": "GPUs and their driver",
    "libraries": "Libraries and environment variables",
    "kernel": "The operating system and the host's hardware",
    "container": "Control groups, namespaces and capabilities",
    "kubernetes": "Manifests of pods",
}
INTRODUCTION = """# Checks

`fathom machine check` reads {count} settings that affect speed. Each check passes, fails, does not apply,
or is reported as not analysed with the reason. Failed checks come first, by cost, each with its fix;
`--fix-script` prints the fixes as one shell script. Nothing is changed.

    fathom machine check --all                   # passed checks too
    fathom machine check --only gpu              # one group, or one check
    fathom machine check --fix-script > fix.sh

"""


def pages() -> dict[str, str]:
    """An index of all checks, and a page for each group."""
    groups = {group: [check for check in checks() if check.group == group] for group in GROUPS}
    return {"reference/checks/index.md": _index(groups)} | {
        f"reference/checks/{group}.md": _page(group, listed) for group, listed in groups.items()
    }


def _index(groups: dict[str, list[Check]]) -> str:
    parts = [INTRODUCTION.format(count=len(checks()))]
    for group, listed in groups.items():
        parts.append(f"## {ABOUT[group]}\n\n{table(('check', 'problem'), map(_row, listed))}")
    return "\n".join(parts)


def _page(group: str, listed: list[Check]) -> str:
    return f"# {ABOUT[group]}\n\nChecks of the group `{group}`, the costliest first.\n\n" + "\n".join(
        map(_section, listed)
    )


def _row(check: Check) -> tuple[str, str]:
    return f"[`{check.id}`]({check.group}.md#{check.id})", text(check.problem)


def _section(check: Check) -> str:
    rows = (
        ("Applies to", text(check.applies)),
        ("Reads", text(check.reads)),
        ("Why", text(check.why)),
        ("Fix", text(check.fix)),
        ("Needs", ", ".join(check.needs)),
        ("Cost", text(check.costs)),
    )
    commands = block("sh", "\n".join(check.commands)) if check.commands else ""
    return f"## {text(check.problem)} {{#{check.id}}}\n\n`{check.id}`\n\n{fields(rows)}\n{commands}"
