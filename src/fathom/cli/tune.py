"""`fathom tune`: search the settings that a program leaves open, and keep those that are proven."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Argument, Option
from typer.core import TyperCommand, TyperGroup

from fathom.cli import tune_kernel
from fathom.cli.console import examples, group, say, seconds_of, write_json
from fathom.errors import BadInputError

if TYPE_CHECKING:
    from fathom.tuner import Options, Tuned

NOT_PROVEN = 1  # exit status
PROGRAM = "program"
HELP = """Search the settings that a program leaves open, and keep those that are proven faster.

The program is recorded first; its findings and its account decide what is tried first. Candidates run a few
steps each, in a copy of the current folder, interleaved with the program as it is. The referee proves the
best one on fresh runs: faster, with the same losses and weights (or outputs). The result is a settings file
for `fathom run --settings` and, where the source can be edited safely, a patch for `git apply`.

Exit status: 0 if settings were proven faster, 1 if none were, 2 if the input cannot be used. To resume an
interrupted search, run the same command again."""
EXAMPLES = examples(
    "fathom tune -- python train.py",
    "fathom tune --budget 30m --agree 0.01 -- python train.py --epochs 1",
    "fathom tune --gpus 0 --gpus 1 --gpus 2 --gpus 3 -- python train.py",
    "fathom tune --until 'loss<=2.5' --adapter knobs.toml -- python train.py",
    "fathom tune kernel norm.py:norm candidates/   (ranks or searches kernels; see its --help)",
    "fathom run --settings train.tune/settings.toml -- python train.py",
    "git apply train.tune/settings.patch   (makes the settings permanent)",
)


def tune(
    command: list[str] | None = Argument(
        None, help="The program and its arguments, after --.", metavar="COMMAND"
    ),
    budget: str = Option("10m", help="Total time limit: 90s, 10m, 1h."),
    output: Path | None = Option(
        None, "-o", "--output", help="Folder of the search. [default: NAME.tune, after the script]"
    ),
    adapter: Path | None = Option(None, help="TOML file with knobs that this program declares."),
    only: list[str] | None = Option(None, help="Search this knob only (repeatable).", metavar="KNOB"),
    without: list[str] | None = Option(None, help="Leave this knob out (repeatable).", metavar="KNOB"),
    until: str | None = Option(
        None, metavar="'loss<=X'", help="Compare the time to reach a loss instead of step time."
    ),
    agree: float | None = Option(
        None,
        min=0,
        max=1,
        help="Accepted relative difference of losses, weights and outputs, beyond rounding.",
    ),
    steps: int | None = Option(None, min=1, help="Timed steps per run. [default: two seconds' worth]"),
    step_on: str = Option("auto", help="Event that marks a step, as in `fathom run`."),
    margin: float = Option(
        0.01, min=0, max=0.5, help="Largest difference that counts as the same, as a share."
    ),
    in_place: bool = Option(False, "--in-place", help="Run in the current folder instead of a copy."),
    gpus: list[str] | None = Option(
        None,
        metavar="GPUS",
        help="GPUs of one lane, like 0 or 0,1; give it several times to try candidates side by side.",
    ),
    replace: bool = Option(False, "--replace", help="Start the search again."),
    seed: int = Option(0, help="Seed of the search."),
    explain: bool = Option(False, "--explain", help="List the knobs, then stop."),
    json: bool = Option(False, "--json", help="Print the whole result as JSON."),
) -> None:
    """Search settings of a program."""
    from fathom.report import print_knobs, print_tuned
    from fathom.tuner import Options, knobs_in, lanes_of

    extra = knobs_in(adapter) if adapter else ()
    if explain:
        print_knobs(extra)
        return
    if not command:
        raise BadInputError("No command was given; add it after --: fathom tune -- python train.py.")
    options = Options(
        budget_s=seconds_of(budget),
        folder=output,
        steps=steps,
        step_on=step_on,
        until=loss_of(until),
        agree=agree,
        margin=margin,
        in_place=in_place,
        only=tuple(only or ()),
        without=tuple(without or ()),
        extra=extra,
        lanes=lanes_of(gpus or ()),
        replace=replace,
        seed=seed,
    )
    result = _searched(command, options)
    (write_json if json else print_tuned)(result)
    raise typer.Exit(0 if result.gain is not None else NOT_PROVEN)


def _searched(command: list[str], options: Options) -> Tuned:
    """Search with a line of progress."""
    from fathom.cli.progress import shown
    from fathom.tuner import tune

    try:
        with shown("starting") as seen:
            return tune(command, replace(options, progress=seen.progress, tell=seen.tell))
    except KeyboardInterrupt:
        say("the search was interrupted; the same command goes on with it")
        raise


class _Tune(TyperGroup):
    """`fathom tune COMMAND` tunes a program; `fathom tune kernel` ranks kernels."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args[:1] in (["kernel"], [PROGRAM]) else [PROGRAM, *args])


class _Program(TyperCommand):
    """The command without the name that it has within the group."""

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        path = (ctx.parent or ctx).command_path
        formatter.write_usage(path, " ".join(self.collect_usage_pieces(ctx)))


app = group(cls=_Tune, help="Search settings of a program, or rank kernels.")
app.command(
    PROGRAM,
    cls=_Program,
    options_metavar="[OPTIONS] --",
    context_settings={"allow_interspersed_args": False},
    help=HELP,
    epilog=EXAMPLES,
)(tune)
app.command("kernel", help=tune_kernel.HELP, epilog=tune_kernel.EXAMPLES)(tune_kernel.kernel)


def loss_of(text: str | None) -> float | None:
    """Parse a quality such as loss<=2.5. Raises BadInputError."""
    if text is None:
        return None
    match = re.fullmatch(r"loss ?<=? ?(\d+(?:\.\d+)?(?:e[+-]?\d+)?)", text.strip())
    if match is None:
        raise BadInputError(f"--until takes a loss such as 'loss<=2.5', not '{text}'.")
    return float(match[1])
