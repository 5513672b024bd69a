"""Measure with a progress bar on standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fathom.cli.console import say

if TYPE_CHECKING:
    from fathom.gauges import Plan, Progress
    from fathom.machine import Ceiling, Missing


def measured(plan: Plan) -> tuple[list[Ceiling], list[Missing]]:
    """Measure `plan`; the bar is hidden unless standard error is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    from fathom import gauges

    columns = (TextColumn("{task.description:32}"), BarColumn(), TextColumn("{task.fields[left]}"))
    console = Console(stderr=True)
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=gauges.seconds(plan), left="")

        def show(now: Progress) -> None:
            where = "" if now.device is None else f" on GPU {now.device}"
            left = f"about {max(now.total_s - now.done_s, 1):.0f} s left"
            bar.update(task, description=now.name + where, completed=now.done_s, left=left)

        return gauges.measure(plan, show)


def measured_machine(counters: bool = False) -> dict[str, Any]:
    """Return this machine with its ceilings, after measuring the quick ones that are missing.

    With `counters`, it also qualifies hardware counters. If something prevents this, it is reported, and the
    machine comes without them.
    """
    machine = _with_ceilings()
    return _with_counters(machine) if counters else machine


def _with_counters(machine: dict[str, Any]) -> dict[str, Any]:
    from fathom.errors import FathomError
    from fathom.gauges import counters

    if not counters.needed(machine):
        return machine
    if why := counters.prevented(machine):
        return {**machine, "why_no_counters": why}
    say("qualifying this machine's hardware counters, once: about 20 s (--no-measure skips it)")
    try:
        measured_here = counters.qualify(machine)
    except FathomError as error:
        say(str(error))
        return {**machine, "why_no_counters": getattr(error, "why", str(error).rstrip("."))}
    try:
        return counters.keep_counters(machine, measured_here)[0]
    except FathomError as error:
        say(str(error))
        return {**machine, "counters": measured_here}


def _with_ceilings() -> dict[str, Any]:
    from fathom import gauges
    from fathom.errors import FathomError
    from fathom.machine import known_machine

    damage: list[str] = []
    machine = known_machine(say=damage.append)
    wanted = gauges.quick_missing(machine)
    if damage or not wanted:
        for why in damage:
            say(f"its ceilings were not measured: {why}")
        return machine
    try:
        plan = gauges.plan(machine, only=wanted)
        say(
            f"measuring this machine's ceilings, once: about {gauges.seconds(plan):.0f} s"
            " (--no-measure skips it)"
        )
        measured_here = measured(plan)
    except (FathomError, OSError) as error:
        say(f"its ceilings were not measured: {error}")
        return machine
    try:
        return gauges.keep(machine, *measured_here)[0]
    except FathomError as error:
        say(str(error))
        return gauges.merge(machine, machine, *measured_here)
