"""Results of checks as a sounding keeps them in `machine.json`, beside the inventory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from fathom.machine.checks.model import Observation, Result, Status, conclude
from fathom.machine.checks.tables import checks

KEY = "checks"


def stored(results: Iterable[Result]) -> dict[str, dict[str, str]]:
    """Status and observation (else the reason) of each check by its id; the rest is in the tables."""
    return {
        result.id: {"status": result.status, "observed": result.observed or result.reason or ""}
        for result in results
    }


def recalled(machine: Mapping[str, Any]) -> list[Result]:
    """The results that `machine.json` keeps, of checks that still exist; [] where it keeps none."""
    kept = machine.get(KEY)
    rows = kept if isinstance(kept, dict) else {}
    return [
        conclude(check, [Observation(status=row["status"], observed=str(row.get("observed", "")))])
        for check in checks()
        if isinstance(row := rows.get(check.id), dict) and row.get("status") in get_args(Status)
    ]
