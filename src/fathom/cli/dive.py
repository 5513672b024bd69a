"""`fathom dive`: profile one kernel in depth with Nsight Compute."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Option

from fathom.cli.console import PATTERN, SoundingPath, examples, print_json, say

EXAMPLES = examples(
    "fathom dive train.fathom layer_norm",
    "fathom dive train.fathom 'softmax.*128x1x1' --set full -o softmax.fathom",
    "fathom dive train.fathom gemm -- python train.py --lr 3e-4",
)


def dive(
    sounding: SoundingPath,
    pattern: str = Argument(help=PATTERN),
    command: list[str] | None = Argument(
        None, help="The program to run, after --. [default: the recorded one]", metavar="COMMAND"
    ),
    launch: int | None = Option(
        None, min=0, help="Profile this launch of the kernel; the first is 0. [default: a settled one]"
    ),
    sections: str = Option(
        "detailed", "--set", help="Metrics to collect: detailed, full, or source (where warps wait)."
    ),
    yes: bool = Option(False, "--yes", help="Run the recorded command even if it was recorded elsewhere."),
    output: Path | None = Option(
        None, "-o", "--output", help="Path of the new sounding. [default: NAME-dive.fathom]"
    ),
    json: bool = Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Rerun the program with one kernel under Nsight Compute, and show what limits the kernel and where."""
    from fathom.recorder.dive import dive as run_dive
    from fathom.report import dive_content, print_dive

    result = run_dive(
        sounding, pattern, command, yes=yes, launch=launch, sections=sections, output=output, say=say
    )
    if json:
        place = {"path": str(result.store.path), "target": result.target}
        print_json(place | dive_content(result.explanation, result.spots))
    else:
        print_dive(result.explanation, result.spots)
    say(f"the new sounding is {result.store.path}")
