"""`fathom machine check`: the setup of this host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fathom.cli.console import print_json, say
from fathom.errors import BadInputError

if TYPE_CHECKING:
    from fathom.machine.checks import Result

BAD_INPUT = 2
EXAMPLES = """Examples:

fathom machine check --only gpu

fathom machine check --manifest pod.yaml --json

kubectl get pod NAME -o yaml | fathom machine check --manifest -"""


def check(
    manifest: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE|-",
            help="Check the pods of this Kubernetes manifest (-: standard input) instead of the host.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="ID|GROUP", help="Only this check, or this group of checks.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with every check by id.")
    ] = False,
    fix_script: Annotated[
        bool, typer.Option("--fix-script", help="Print the fixes as a shell script without running it.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="List every check, not only those that failed.")
    ] = False,
) -> None:
    """Check how this host is set up for AI workloads, and suggest changes.

    Exit status: 0 if no check failed, 1 if one failed, 2 if the input cannot be used.
    """
    try:
        results = _examine(manifest, only or [])
    except BadInputError as error:
        say(str(error))
        raise typer.Exit(BAD_INPUT) from None
    _print(results, json=json, script=fix_script, every=every)
    if any(result.status == "fail" for result in results):
        raise typer.Exit(1)


def _examine(manifest: list[Path] | None, only: list[str]) -> list[Result]:
    from fathom.machine.checks import chosen, examine, this_host

    which = chosen(only or (["kubernetes"] if manifest else []))
    return examine(this_host(), which, manifest or ())


def _print(results: list[Result], *, json: bool, script: bool, every: bool) -> None:
    from fathom.machine.checks import as_json, fix_script
    from fathom.report import print_checks

    if json:
        print_json(as_json(results))
    elif script:
        print(fix_script(results), end="")
    else:
        print_checks(results, every=every)
