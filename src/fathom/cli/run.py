"""`fathom run`: record a program."""

from __future__ import annotations

import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from typer import Argument, Option
from typer.core import TyperCommand

from fathom.cli.console import Replace, examples, explain, say
from fathom.errors import FathomError
from fathom.visible import visible_line

if TYPE_CHECKING:
    from fathom.recorder import Applied, Destination, Plan, Recording
    from fathom.sounding import Store

FATHOM_FAILED = 125
HELP = """Record an unmodified program on this machine and report where its step time goes.

The program's output, signals and exit status pass through; status 125 means that Fathom failed to start it.
SIGUSR2 to Fathom requests another timeline."""
EXAMPLES = examples(
    "fathom run -- python train.py --lr 3e-4",
    "fathom run -o baseline.fathom --steps 50 --stop-after -- torchrun --nproc-per-node 8 train.py",
    "fathom run --what-if input -- python train.py",
    "torchrun --nproc-per-node 8 -m fathom run -o job -- train.py",
    "fathom run --raw -- ./train.sh",
)
ALONE = ("--stop-after", "--what-if")


class RunCommand(TyperCommand):
    """Allow `--stop-after` and `--what-if` without a value, which the option parser does not support."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        takes_value = {o for p in self.params if not getattr(p, "is_flag", False) for o in p.opts}
        return super().parse_args(ctx, fill_alone(args, takes_value))


SETTINGS = {
    "cls": RunCommand,
    "options_metavar": "[OPTIONS] --",
    "context_settings": {"allow_interspersed_args": False},
    "help": HELP,
}


def fill_alone(args: list[str], takes_value: set[str]) -> list[str]:
    """Return `args` with default values: `recorded` after a bare `--stop-after`, `all` after `--what-if`.

    The words of the program's command stay unchanged.
    """
    done: list[str] = []
    rest = list(args)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        option = rest.pop(0)
        done.append(option)
        if option in ALONE and _meant_for_it(rest):
            done.append(rest.pop(0))
        elif option == "--stop-after" and not (rest and (rest[0].isdigit() or rest[0] == "recorded")):
            done.append("recorded")
        elif option == "--what-if":
            done.append(_kinds(rest))
        elif option in takes_value and rest:
            done.append(rest.pop(0))
    return done + rest


def _meant_for_it(rest: list[str]) -> bool:
    """Return whether the single word before `--` is a value, possibly an invalid one, and not a program."""
    return rest[1:2] == ["--"] and not rest[0].startswith("-") and shutil.which(rest[0]) is None


def _kinds(rest: list[str]) -> str:
    """Remove the kinds of trials from the front of `rest`, and return them."""
    from fathom.recorder import TRIALS

    kinds: list[str] = []
    while rest and set(rest[0].split(",")) <= {*TRIALS, "checkpoint", "all"}:
        kinds.append(rest.pop(0))
    return ",".join(kinds) or "all"


def run(
    command: list[str] = Argument(help="The program and its arguments, after --.", metavar="COMMAND"),
    output: str | None = Option(
        None,
        "-o",
        "--output",
        help="Path of the sounding. [default: NAME.fathom, after the script] If torchrun, srun or mpirun"
        " start Fathom once per rank, a directory of parts. A URL that fsspec knows (s3://…) also works.",
    ),
    depth: str = Option(
        "auto",
        help="auto (the deepest that works here), surface (marks, telemetry, input), timeline (also"
        " kernels, launches, ops) or counters (also hardware counters, or fail).",
    ),
    steps: int | None = Option(None, help="Steps recorded in each phase."),
    counter_samples: int | None = Option(
        None,
        help="Samples per group of hardware counters; more samples help with short or rare kernels."
        " [default: 16000, up to four times as many on an idle device]",
    ),
    count_after: int | None = Option(
        None,
        help="Record N clean steps and only count later ones, so that the log of a long run stays small."
        " [default: 200000; 10000 at surface depth]",
        metavar="N",
    ),
    settle: str = Option(
        "auto", help="Steps to wait before recording; auto: until the step time is stable.", metavar="auto|N"
    ),
    step_on: str = Option(
        "auto", help="Event that marks a step: auto, mark, optimizer, loader, forward or none."
    ),
    at: list[int] | None = Option(None, help="Also record a timeline at step N (repeatable).", metavar="N"),
    on_slow_step: bool = Option(False, "--on-slow-step", help="Also record a timeline after a slow step."),
    stop_after: str | None = Option(
        None, help="End the program after N steps, or when the recording is complete.", metavar="[N|recorded]"
    ),
    what_if: str | None = Option(
        None,
        help="Measure the gain of removing a cause: run a few steps without it, five times. Causes: input"
        " (batches are fetched ahead), logging (output is buffered and written afterwards), gc (garbage"
        " collection is off), or all. This takes 200 to 500 steps. Because batches are prefetched, a"
        " program that loads data in its own process draws random numbers in another order; its output is"
        " delayed.",
        metavar="[KIND...]",
    ),
    settings: Path | None = Option(
        None, help="Settings file of `fathom tune`, applied to the program.", metavar="FILE"
    ),
    max_size: str | None = Option(
        None,
        help="Stop recording when the raw records reach this size, such as 500MB. The program continues.",
    ),
    raw: bool = Option(False, "--raw", help="Keep raw records, to import later or elsewhere."),
    measure: bool = Option(
        True,
        "--measure/--no-measure",
        envvar="FATHOM_MEASURE",
        help="First measure ceilings and qualify hardware counters that are not known yet.",
    ),
    quiet: bool = Option(False, "--quiet", "-q", help="Print no report at the end."),
    replace: Replace = False,
) -> None:
    """Record a program and report on it."""
    from fathom.recorder import (
        Applied,
        Plan,
        choose_destination,
        finish,
        leave,
        number_or_word,
        read_settings,
        size_of,
        trials,
    )

    try:
        applied = read_settings(settings) if settings else Applied()
        command = applied.words(command)
        plan = Plan(
            depth,
            steps,
            number_or_word(settle),
            step_on,
            tuple(at or ()),
            on_slow_step,
            None if stop_after is None else number_or_word(stop_after),
            counter_samples=counter_samples,
            count_after=count_after,
            what_if=trials(what_if),
            max_size=size_of(max_size),
            acts=applied.acts,
        )
    except FathomError as error:
        raise typer.BadParameter(visible_line(str(error))) from None
    try:
        place = choose_destination(output, command)
    except FathomError as error:
        _fail(error, FATHOM_FAILED)
    if settings:
        _warn(settings, applied)
    recording = _record(command, plan, place, replace, measure, applied)
    store = finish(recording.folder, keep_raw=raw, say=say)
    if store and not quiet and place.task is None:
        _report(store)
    place.deliver(command, say)
    leave(recording.ending)


def _record(
    command: list[str], plan: Plan, place: Destination, replace: bool, measure: bool, applied: Applied
) -> Recording:
    from fathom import gauges
    from fathom.cli.progress import measured
    from fathom.machine import known_machine
    from fathom.recorder import CannotLaunchError, record

    completed = partial(gauges.completed, measured, say, counters=plan.samples)
    machine = completed if measure and place.task is None else known_machine  # ranks would disturb each other
    try:
        return record(
            command,
            plan,
            place,
            replace=replace,
            machine=machine,
            environment=applied.variables(os.environ),
            settings=applied.knobs,
            say=say,
        )
    except CannotLaunchError as error:
        _fail(error, error.status)
    except FathomError as error:
        _fail(error, FATHOM_FAILED)
    except Exception as error:
        _fail(explain(error), FATHOM_FAILED)


def _warn(path: Path, applied: Applied) -> None:
    """Say which settings were proven on a machine that differs in what decides about them."""
    from fathom.machine import described

    try:
        from fathom.machine.compare import settings_lost

        machine = applied.inventory()
        lost = settings_lost(machine, described(), applied.knobs, applied.carries) if machine else []
    except (ImportError, FathomError) as error:
        say(f"whether the settings of {path} fit this machine is unknown: {visible_line(str(error))}")
        return
    if lost:
        say(
            f"proven on another machine, and may be slower here: {', '.join(lost)}; see"
            f" `fathom machine compare {path}`"
        )


def _fail(why: object, status: int) -> NoReturn:
    say(str(why))
    sys.exit(status)


def _report(store: Store) -> None:
    """Print the report. An error here does not change the exit status."""
    from rich.console import Console

    from fathom.api import Sounding
    from fathom.report import print_report

    try:
        print_report(Sounding(store).examine(), Console(stderr=True, highlight=False, soft_wrap=True))
    except (Exception, KeyboardInterrupt) as error:
        say(f"{store.path} was recorded, but the report failed: {str(error) or type(error).__name__}")
    else:
        say(f"the sounding is {store.path}")
