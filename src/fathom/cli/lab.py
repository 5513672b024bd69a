"""`fathom lab`: techniques as runnable pairs, proven on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Argument, Option

from fathom.cli.console import examples, group, print_json, say
from fathom.cli.progress import shown
from fathom.errors import BadInputError, FathomError

if TYPE_CHECKING:
    from fathom.lab import Outcome, Technique

app = group(no_args_is_help=True, help="Techniques as runnable pairs, proven on this machine.")
LIST_EXAMPLES = examples("fathom lab list", "fathom lab list memory --json")
SHOW_EXAMPLE = "Example: fathom lab show transpose"
RUN_EXAMPLES = examples(
    "fathom lab run transpose warp-reduction",
    "fathom lab run coalescing --record soundings",
    "fathom lab run --all --json",
)
FAILED = 1


@app.command("list", short_help="List techniques and their gains here.", epilog=LIST_EXAMPLES)
def list_(
    names: list[str] | None = Argument(None, help="Names or groups. [default: all]"),
    json: bool = Option(False, "--json", help="Print it as JSON."),
) -> None:
    """List techniques: the resource each saves, whether it runs here, and what it gained here."""
    from fathom import lab
    from fathom.machine import inventory
    from fathom.report import print_techniques

    machine = inventory()
    fingerprint, at = machine["fingerprint"], lab.here(machine)
    rows = [lab.listed(technique, fingerprint, at, say) for technique in _chosen(names or [])]
    (print_json if json else print_techniques)(rows)


@app.command("show", short_help="Show one technique.", epilog=SHOW_EXAMPLE)
def show(
    name: str = Argument(help="A technique."),
    json: bool = Option(False, "--json", help="Print it as JSON."),
) -> None:
    """Show one technique: its idea, its cost, when it does not pay off, and its effect on counters."""
    from fathom.lab import described
    from fathom.report import print_technique

    technique = _chosen([name])[0]
    if json:
        print_json(described(technique))
    else:
        print_technique(technique)


@dataclass
class _Results:
    """The outcomes of a run: printed as they come, or together as JSON at the end."""

    json: bool
    outcomes: list[Outcome] = field(default_factory=list)
    recorded: dict[str, dict[str, Any]] = field(default_factory=dict)  # by technique

    def add(self, outcome: Outcome) -> None:
        from fathom.report import print_outcome

        self.outcomes.append(outcome)
        if not self.json:
            print_outcome(outcome)

    def record(self, outcome: Outcome, folder: Path, tell: Callable[[str], None]) -> None:
        """Record both forms and compare their findings; do nothing if the technique does not run here."""
        from fathom import lab
        from fathom.diagnosis import form_findings, pair_findings
        from fathom.report import print_pair_findings

        if outcome.kept is None:
            return
        technique = lab.techniques()[outcome.technique]
        try:
            plain, tuned = lab.record_forms(technique, folder, say=tell)
        except FathomError as error:
            say(str(error))
            self.recorded[outcome.technique] = {"not_recorded": str(error)}
            return
        findings = pair_findings(technique.header.findings, form_findings(plain), form_findings(tuned))
        paths = [str(plain.path), str(tuned.path)]
        self.recorded[outcome.technique] = {"soundings": paths, "findings": findings}
        if not self.json:
            print_pair_findings(findings)

    @property
    def bad(self) -> bool:
        """Whether a pair could not be proven or recorded, or was refused."""
        failed = any("not_recorded" in more for more in self.recorded.values())
        return failed or any(outcome.bad for outcome in self.outcomes)

    @contextmanager
    def printed(self) -> Iterator[None]:
        """Context manager that prints the results at its end, even after an error."""
        import msgspec

        try:
            yield
        except KeyboardInterrupt:
            say(f"Stopped; what was proven is kept ({len(self.outcomes)} of this run).")
            raise
        finally:
            if self.json:
                rows = [(outcome.technique, msgspec.to_builtins(outcome)) for outcome in self.outcomes]
                print_json([row | self.recorded.get(name, {}) for name, row in rows])


@app.command("run", epilog=RUN_EXAMPLES)
def run(
    names: list[str] | None = Argument(None, help="Names or groups."),
    every: bool = Option(False, "--all", help="All techniques."),
    force: bool = Option(False, "--force", help="Prove again what was already proven here."),
    budget: float = Option(30.0, metavar="SECONDS", help="Maximum time for timing one technique."),
    limit: float = Option(
        300.0, metavar="SECONDS", min=1, help="Maximum time for one technique, after which it has failed."
    ),
    jobs: int | None = Option(
        None, min=1, help="Number of proofs in parallel. [default: 1, on a GPU as many as fit]"
    ),
    record: Path | None = Option(
        None, metavar="FOLDER", help="Also record a sounding of each form, and compare their findings."
    ),
    json: bool = Option(False, "--json", help="Print the outcomes as JSON."),
) -> None:
    """Prove techniques on this machine, and store the verdicts.

    Proofs run in parallel, except while one takes samples. Each verdict is stored at once, so the same
    command continues after Ctrl-C.

    Exit status: 1 if a pair could not be proven or recorded, or was refused; else 0. Skipped techniques and
    missing findings do not count as failures.
    """
    from fathom import lab

    if bool(names) == every:
        raise BadInputError("Name techniques or groups, or give --all.")
    wanted, results = _chosen(names or []), _Results(json)
    limits: dict[str, Any] = {"budget_s": budget, "limit_s": limit, "jobs": jobs}
    with results.printed(), shown("starting") as seen:
        with closing(lab.run(wanted, force=force, say=seen.progress, tell=seen.tell, **limits)) as outcomes:
            for outcome in outcomes:
                results.add(outcome)
        if record:
            for outcome in results.outcomes:
                results.record(outcome, record, seen.progress)
    raise typer.Exit(FAILED if results.bad else 0)


def _chosen(names: list[str]) -> list[Technique]:
    from fathom import lab

    return lab.chosen(names) if names else list(lab.techniques().values())
