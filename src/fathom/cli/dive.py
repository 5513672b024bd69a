"""`fathom dive`: profile one kernel in depth with Nsight Compute."""

from __future__ import annotations

import json as json_library
from pathlib import Path
from typing import Annotated, Any

import typer

from fathom.cli.console import say

EXAMPLES = """Examples:

fathom dive train.fathom layer_norm

fathom dive train.fathom 'softmax.*128x1x1' --set full -o softmax.fathom

fathom dive train.fathom gemm -- python train.py --lr 3e-4"""


def dive(
    sounding: Annotated[Path, typer.Argument(help="A sounding, packed or not.")],
    pattern: Annotated[
        str,
        typer.Argument(
            help="The family's name, a part of it, a pattern with * and ?, or a regular expression."
        ),
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(help="The program to run, after --. [default: the recorded one]", metavar="COMMAND"),
    ] = None,
    launch: Annotated[
        int | None,
        typer.Option(
            min=0, help="Profile from this launch of the kernel on; the first is 0. [default: settled]"
        ),
    ] = None,
    sections: Annotated[
        str, typer.Option("--set", help="Metrics to collect: detailed, full, or source (where warps wait).")
    ] = "detailed",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Path of the new sounding. [default: NAME-dive.fathom]"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Rerun the program with one kernel under Nsight Compute, and show what limits the kernel and where."""
    from dataclasses import asdict

    import msgspec

    from fathom.recorder.dive import dive as run_dive
    from fathom.report import print_dive

    result = run_dive(sounding, pattern, command, launch=launch, sections=sections, output=output, say=say)
    if json:
        content: dict[str, Any] = {"path": str(result.store.path), "target": asdict(result.target)}
        content |= {**msgspec.to_builtins(result.explanation), "hot_spots": result.spots}
        print(json_library.dumps(content, indent=1))
    else:
        print_dive(result.explanation, result.spots)
    say(f"the new sounding is {result.store.path}")
