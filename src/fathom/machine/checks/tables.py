"""The checks as data, `rows/GROUP.yaml`; their results in a sounding's `machine.json`; fixes as a script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, get_args

import msgspec

from fathom.data import load
from fathom.errors import BadInputError
from fathom.machine.checks.model import Check, Need, Observation, Result, Status, conclude
from fathom.machine.model import Machine

GROUPS = ("gpu", "libraries", "kernel", "container", "kubernetes")
HEAD = """#!/bin/sh
# Fixes for the failed checks of `fathom machine check`. Nothing has been run; read the script first.
# Lines that need a decision or a reboot are commented out: uncomment those you want.
# Variables and limits take effect only in the shell that sources this file: . ./fix.sh
"""
# Fields that a row need not repeat: those of its table, and those of its reader.
OF_TABLE: dict[str, dict[str, Any]] = {
    "container": {"needs": ["decision"]},  # a person starts containers and pods
    "kubernetes": {"needs": ["decision"]},
}
OF_READER: dict[str, dict[str, Any]] = {
    "variable": {"fix": "Unset the variable.", "commands": ["unset {names}"], "needs": ["shell"]},
}
NEEDS: dict[Need, str] = {
    "root": "root",
    "reboot": "a reboot, or reloading the driver",
    "decision": "your decision",
    "shell": "the shell that starts the program",
}


@cache
def checks() -> tuple[Check, ...]:
    """Return every check, the costliest first; rows of equal weight keep the order of their tables."""
    rows = [check for group in GROUPS for check in _table(group)]
    return tuple(sorted(rows, key=lambda check: -check.weight))


def _table(group: str) -> list[Check]:
    rows = load("fathom.machine.checks", f"rows/{group}")
    common = OF_TABLE.get(group, {})
    full = (
        {"id": f"{group}.{name}", **common, **OF_READER.get(row.get("reader"), {}), **row}
        for name, row in rows.items()
    )
    return msgspec.convert(list(full), list[Check])


def chosen(only: list[str]) -> list[Check]:
    """Return the checks selected by id or group, or all if none are named. Raises BadInputError."""
    known = {name for check in checks() for name in (check.id, check.group)}
    for name in only:
        if name not in known:
            raise BadInputError(
                f"There is no check or group {name!r}; the groups are {', '.join(GROUPS)}, and "
                "`fathom machine check --all` lists the checks."
            )
    return [check for check in checks() if not only or {check.id, check.group} & {*only}]


def stored(results: Iterable[Result]) -> dict[str, dict[str, str]]:
    """Return status and observation (else the reason) of each check by id; the rest is in the rows."""
    return {
        result.id: {"status": result.status, "observed": result.observed or result.reason or ""}
        for result in results
    }


def recalled(machine: Machine) -> list[Result]:
    """Return the results that `machine.json` contains, of checks that still exist."""
    kept = machine.get("checks")
    rows = kept if isinstance(kept, dict) else {}
    return [
        conclude(check, [Observation(status=row["status"], observed=str(row.get("observed", "")))])
        for check in checks()
        if isinstance(row := rows.get(check.id), dict) and row.get("status") in get_args(Status)
    ]


def fix_script(results: Iterable[Result]) -> str:
    """Return the script, the costliest check first. It parses with `sh -n` whatever was observed."""
    paragraphs = ["\n".join(_lines(result)) for result in results if result.status == "fail"]
    return "\n\n".join([HEAD.rstrip(), *(paragraphs or ["# No check failed."])]) + "\n"


def _lines(result: Result) -> Iterator[str]:
    yield f"# {result.id}: {result.problem or result.title}"
    yield f"#   found: {result.observed}"
    yield f"#   fix: {result.fix}"
    if result.needs:
        yield f"#   needs: {', '.join(NEEDS[need] for need in result.needs)}"
    commented = {"decision", "reboot"} & {*result.needs}
    for command in result.commands:
        yield command if command.startswith("#") or not commented else f"# {command}"
