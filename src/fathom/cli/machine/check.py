"""`fathom machine check`: the setup of this host."""

from __future__ import annotations

from pathlib import Path

import typer
from typer import Option

from fathom.cli.console import examples, print_json

EXAMPLES = examples(
    "fathom machine check --only gpu",
    "fathom machine check --manifest pod.yaml --json",
    "kubectl get pod NAME -o yaml | fathom machine check --manifest -",
)


def check(
    manifest: list[Path] | None = Option(
        None,
        metavar="FILE|-",
        help="Check the pods of this Kubernetes manifest (-: standard input) instead of the host.",
    ),
    only: list[str] | None = Option(
        None, metavar="ID|GROUP", help="Only this check, or this group of checks."
    ),
    json: bool = Option(False, "--json", help="Print one JSON object with every check by id."),
    fix_script: bool = Option(
        False, "--fix-script", help="Print the fixes as a shell script without running it."
    ),
    every: bool = Option(False, "--all", help="List every check, not only those that failed."),
) -> None:
    """Check how this host is set up for AI workloads, and suggest changes.

    Exit status: 0 if no check failed, 1 if one failed, 2 if the input cannot be used.
    """
    from fathom.machine.checks import as_json, chosen, examine, this_host
    from fathom.machine.checks import fix_script as script_of
    from fathom.report import print_checks

    which = chosen(only or (["kubernetes"] if manifest else []))
    results = examine(this_host(), which, manifest or ())
    if json:
        print_json(as_json(results))
    elif fix_script:
        print(script_of(results), end="")
    else:
        print_checks(results, every=every)
    if any(result.status == "fail" for result in results):
        raise typer.Exit(1)
