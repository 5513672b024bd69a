"""`fathom lab`: techniques as runnable pairs, proven on this machine."""

from __future__ import annotations

import json as json_library
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from fathom.cli.console import say
from fathom.cli.progress import shown
from fathom.errors import BadInputError, FathomError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Techniques as runnable pairs, proven on this machine.",
)
LIST_EXAMPLES = """Examples:

fathom lab list

fathom lab list memory --json"""
SHOW_EXAMPLE = "Example: fathom lab show transpose"
RUN_EXAMPLES = """Examples:

fathom lab run transpose warp-reduction

fathom lab run coalescing --record soundings

fathom lab run --all --json"""
FAILED = 1


@app.command("list", epilog=LIST_EXAMPLES)
def list_(
    names: Annotated[list[str] | None, typer.Argument(help="Names or groups. [default: all]")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """List techniques: the resource each saves, whether it runs here, and what it gained here."""
    import msgspec

    from fathom import lab
    from fathom.machine import inventory
    from fathom.report import print_techniques

    machine = inventory()
    fingerprint, at = machine["fingerprint"], lab.here(machine)
    rows = [lab.listed(technique, fingerprint, at, say) for technique in _chosen(names or [])]
    if json:
        print(json_library.dumps(msgspec.to_builtins(rows), indent=1))
    else:
        print_techniques(rows)


@app.command("show", epilog=SHOW_EXAMPLE)
def show(
    name: Annotated[str, typer.Argument(help="A technique.")],
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show one technique: its idea, its cost, when it does not pay, and what counters tell of it."""
    from fathom.lab import described
    from fathom.report import print_technique

    technique = _chosen([name])[0]
    if json:
        print(json_library.dumps(described(technique), indent=1))
    else:
        print_technique(technique)


@app.command("run", epilog=RUN_EXAMPLES)
def run(
    names: Annotated[list[str] | None, typer.Argument(help="Names or groups.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All techniques.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Prove again what was proven here.")] = False,
    budget: Annotated[float, typer.Option(metavar="SECONDS", help="Timing of one at most.")] = 30.0,
    limit: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="All of one at most; then it has failed.")
    ] = 300.0,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Prove so many side by side. [default: 1, on a GPU what it has room for]"),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Record a sounding of each form too, and compare their findings."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the outcomes as JSON.")] = False,
) -> None:
    """Prove techniques on this machine, and remember the verdicts.

    Side by side, all but the samples is: who takes samples has the machine alone. Each result is kept as
    soon as it is reached, so after Ctrl-C the same command goes on where it was.

    Exit status: 0, or 1 when a pair could not be proven or recorded, or was refused. Skipped ones are no
    failure, and neither is a finding that is missing.
    """
    import msgspec

    from fathom import lab

    if bool(names) == every:
        raise BadInputError("Name techniques or groups, or give --all.")
    wanted = _chosen(names or [])
    options: dict[str, Any] = {"force": force, "budget_s": budget, "limit_s": limit, "jobs": jobs}
    outcomes = list[tuple[Any, dict[str, Any]]]()
    try:
        with shown("starting") as seen:
            _prove(lab.run(wanted, say=seen.progress, tell=seen.tell, **options), outcomes, json)
            for outcome, more in outcomes if record else ():
                more |= _recorded(outcome, record, json, seen.progress)
    except KeyboardInterrupt:
        say(f"Stopped; what was proven is kept ({len(outcomes)} of this run).")
        raise
    finally:
        if json:
            content = [msgspec.to_builtins(outcome) | more for outcome, more in outcomes]
            print(json_library.dumps(content, indent=1))
    bad = any(outcome.bad or "not_recorded" in more for outcome, more in outcomes)
    raise typer.Exit(FAILED if bad else 0)


def _prove(
    running: Generator[Any, None, None], outcomes: list[tuple[Any, dict[str, Any]]], json: bool
) -> None:
    """Note and print outcomes as they come; however it ends, so do the proofs that still run."""
    from fathom.report import print_outcome

    with closing(running):
        for outcome in running:
            outcomes.append((outcome, {}))
            if not json:
                print_outcome(outcome)


def _recorded(outcome: Any, folder: Path | None, json: bool, tell: Callable[[str], None]) -> dict[str, Any]:
    """The soundings of both forms, and which findings name the technique; {} of what does not run here."""
    import msgspec

    from fathom import lab
    from fathom.diagnosis import seen, told
    from fathom.report import print_pair_findings

    if outcome.kept is None or folder is None:
        return {}
    technique = lab.techniques()[outcome.technique]
    try:
        plain, tuned = lab.record_forms(technique, folder, say=tell)
    except FathomError as error:
        say(str(error))
        return {"not_recorded": str(error)}
    listed = told(technique.header.findings, seen(plain), seen(tuned))
    if not json:
        print_pair_findings(listed)
    return {"soundings": [str(plain.path), str(tuned.path)], "findings": msgspec.to_builtins(listed)}


def _chosen(names: list[str]) -> list[Any]:
    from fathom import lab

    return lab.chosen(names) if names else list(lab.techniques().values())
