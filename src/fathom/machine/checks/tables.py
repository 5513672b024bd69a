"""The checks as data: `rows/GROUP.yaml`, one row per check."""

from __future__ import annotations

from functools import cache

import msgspec

from fathom.data import load
from fathom.errors import BadInputError
from fathom.machine.checks.model import Check

GROUPS = ("gpu", "libraries", "kernel", "container", "kubernetes")


@cache
def checks() -> tuple[Check, ...]:
    """Return every check, the costliest first; rows of equal weight keep the order of their tables."""
    rows = [check for group in GROUPS for check in _table(group)]
    return tuple(sorted(rows, key=lambda check: -check.weight))


def _table(group: str) -> list[Check]:
    rows = load("fathom.machine.checks", f"rows/{group}")
    return [msgspec.convert({"id": f"{group}.{name}", **row}, Check) for name, row in rows.items()]


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
