"""Generic readers whose judgement is entirely in the row: a number in a file, a soft limit."""

from __future__ import annotations

from fathom.machine.checks.host import UNLIMITED, Host
from fathom.machine.checks.model import Check, Observation, judged, unfit
from fathom.machine.checks.registry import reader
from fathom.machine.files import UnreadableError


@reader("number")
def number(host: Host, check: Check) -> Observation:
    """Check that the number in `path` is within `at_least` … `at_most`; the path `only_with` must exist."""
    using = check.using
    if "only_with" in using and not host.paths(using["only_with"]):
        return unfit(f"there is no /{using['only_with']}")
    value = host.number(using["path"])
    low, high = using.get("at_least", -UNLIMITED), using.get("at_most", UNLIMITED)
    return judged(low <= value <= high, f"/{using['path']} is {value}")


@reader("limit")
def limit(host: Host, check: Check) -> Observation:
    """Check that this process's soft limit `name` is at least `at_least`, in its unit."""
    using = check.using
    if "only_with" in using and not host.paths(using["only_with"]):
        return unfit(f"there is no /{using['only_with']}")
    value = host.limits.get(using["name"])
    if value is None:
        raise UnreadableError(f"this system does not report the limit {using['name']}")
    words = "unlimited" if value == UNLIMITED else f"{value:.0f} {using['unit']}"
    return judged(value >= using["at_least"], f"the soft limit is {words}")
