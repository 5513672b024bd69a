"""Record a program: everything from its command to its raw records."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fathom.machine import known_machine
from fathom.machine.model import Machine
from fathom.recorder.command import CannotLaunchError, prevented, resolve_command
from fathom.recorder.counters import met, unsampled
from fathom.recorder.destination import Destination, choose_destination
from fathom.recorder.launch import (
    NewFolder,
    check_creatable,
    check_free,
    child_environment,
    flush_output,
    spawn,
    write_launch,
)
from fathom.recorder.plan import Plan
from fathom.recorder.sensors import all_sensors
from fathom.recorder.stacks import StackSampler
from fathom.recorder.supervise import Ending, Inbox, PortableInbox, Supervisor, inbox
from fathom.recorder.telemetry import Telemetry
from fathom.redaction import own_patterns

Say = Callable[[str], None]
STACKS = "host stacks"


@dataclass(frozen=True)
class Recording:
    """A program that has ended, and the folder whose `raw/` holds its records."""

    folder: Path
    ending: Ending


def record(
    command: list[str],
    plan: Plan,
    output: Path | Destination | None = None,
    *,
    replace: bool = False,
    machine: Callable[[], Machine] = known_machine,
    environment: Mapping[str, str] = os.environ,
    settings: Mapping[str, str] | None = None,
    say: Say = lambda _: None,
) -> Recording:
    """Run `command` under `plan` and write its raw records to `output`, by default named after the command.

    `machine` returns the inventory; it is called just before the program starts. `settings` are the applied
    settings that the sounding names: value by knob.
    Raises CannotLaunchError if the program was not started, BadInputError if `output` cannot be created, and
    NotSampledError if counters were requested by name but cannot be sampled.
    """
    path, command = resolve_command(command, environment)
    own_patterns()  # an invalid one is an error before the program starts
    place = output if isinstance(output, Destination) else choose_destination(output, command, environment)
    folder = place.folder
    check_free(folder, replace or place.url is not None)
    check_creatable(folder)
    warning = prevented(command)
    if warning:
        say(warning)
    known = machine()
    plan = met(plan, known, environment)
    made = NewFolder(folder, replace or place.url is not None)
    raw = folder / "raw"
    try:
        plan.write(raw)
        write_launch(raw, command, environment, known, name=folder.stem, settings=dict(settings or {}))
        # Signals are blocked before threads start, which would receive them instead.
        with inbox() as signals, StackSampler(raw) as stacks:
            around = dict(environment)
            if not warning:  # without the probe, nothing would take Fathom's variables out again
                around = child_environment(place.environment(environment), raw, plan.depth != "surface")
            child = spawn(path, command, around, signals.mask)
            made.keep()
            return Recording(folder, _wait(child, plan, raw, environment, signals, say, stacks))
    except CannotLaunchError:
        made.undo()
        raise


def _wait(
    child: int,
    plan: Plan,
    raw: Path,
    environment: Mapping[str, str],
    signals: Inbox | PortableInbox,
    say: Say,
    stacks: StackSampler,
) -> Ending:
    sensors, why_no_gpu = all_sensors(child, environment)
    with Telemetry(raw, sensors, sparse=plan.depth == "surface") as telemetry:
        end = Supervisor(child, raw, signals, stop=plan.stop_after is not None, say=say).wait()
    why_not = {"telemetry of the GPU": why_no_gpu, STACKS: stacks.fault}
    for fault in filter(None, (telemetry.fault, _keep(end, raw, why_not, plan))):
        say(fault)
    if plan.depth == "counters" and (why := unsampled(raw)):
        say(f"no hardware counters were sampled: {why}")
    return end


def _keep(end: Ending, raw: Path, why_not: dict[str, str | None], plan: Plan) -> str | None:
    """Write `end.json`. Return the reason if that fails, because it must not change the exit status."""
    abstained = [{"what": what, "why": why} for what, why in why_not.items() if why]
    try:
        end.write(raw, abstained + plan.abstained)
    except OSError as error:
        return f"the end of the program could not be recorded: {error.strerror}"
    return None


def leave(ending: Ending) -> None:
    """End this process like the program: with its exit status, or by the signal that killed it."""
    number = ending.signal_number
    if number is not None:
        _die_of(number)
    sys.exit(ending.exit_status)


def _die_of(number: int) -> None:
    import resource

    flush_output()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has already left its own core dump, if any
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    time.sleep(0.1)  # the signal may not kill us, because the kernel protects process 1 of a container
