"""Complete the description of this machine: measure ceilings and qualify counters that are not known yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fathom.errors import FathomError
from fathom.gauges import counters as qualification
from fathom.gauges.keeping import keep, merge, quick_missing
from fathom.gauges.parent import seconds
from fathom.gauges.planning import MeasurementPlan, plan
from fathom.machine import Ceiling, Missing, known_machine

Say = Callable[[str], None]
Measure = Callable[[MeasurementPlan], tuple[list[Ceiling], list[Missing]]]


def completed(measure: Measure, say: Say, counters: bool = False) -> dict[str, Any]:
    """Return this machine with its ceilings, after measuring those of the quick set that are missing.

    With `counters`, also qualify the hardware counters. If either fails, `say` gets the reason, and the
    result lacks them.
    """
    machine = _with_ceilings(measure, say)
    return _with_counters(machine, say) if counters else machine


def _with_counters(machine: dict[str, Any], say: Say) -> dict[str, Any]:
    if not qualification.needed(machine):
        return machine
    if why := qualification.prevented(machine):
        return {**machine, "why_no_counters": why}
    say("qualifying this machine's hardware counters, once: about 20 s (--no-measure skips it)")
    try:
        qualified = qualification.qualify(machine)
    except FathomError as error:
        say(str(error))
        return {**machine, "why_no_counters": getattr(error, "why", str(error).rstrip("."))}
    try:
        return qualification.keep_counters(machine, qualified)[0]
    except FathomError as error:
        say(str(error))
        return {**machine, "counters": qualified}


def _with_ceilings(measure: Measure, say: Say) -> dict[str, Any]:
    damage: list[str] = []
    machine = known_machine(say=damage.append)
    wanted = quick_missing(machine)
    if damage or not wanted:
        for why in damage:
            say(f"its ceilings were not measured: {why}")
        return machine
    try:
        todo = plan(machine, only=wanted)
        say(f"measuring this machine's ceilings, once: about {seconds(todo):.0f} s (--no-measure skips it)")
        measured = measure(todo)
    except (FathomError, OSError) as error:
        say(f"its ceilings were not measured: {error}")
        return machine
    try:
        return keep(machine, *measured)[0]
    except FathomError as error:
        say(str(error))
        return merge(machine, machine, *measured)
