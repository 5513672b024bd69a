"""Host checks: rows of data, small reader functions, and one result per check."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import fathom.machine.checks.readers  # registers them
from fathom.machine.checks.host import Host, this_host
from fathom.machine.checks.manifest import pods
from fathom.machine.checks.model import Check, Observation, Result, as_json, conclude
from fathom.machine.checks.registry import read
from fathom.machine.checks.tables import GROUPS, checks, chosen, fix_script, recalled, stored


def examine(host: Host, which: Iterable[Check] | None = None, manifests: Sequence[Path] = ()) -> list[Result]:
    """Run the checks and return their results, the costliest first. Does not raise, whatever the host.

    The pods of Kubernetes `manifests` belong to the host; raises BadInputError for those it cannot read.
    """
    host = replace(host, pods=pods(manifests)) if manifests else host
    selected: Sequence[Check] = checks() if which is None else [*which]
    return [conclude(check, read(host, check)) for check in selected]
