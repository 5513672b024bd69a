"""`fathom gate`: check recordings against budgets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from typer import Argument, Option

from fathom.cli.compare import SidesCommand
from fathom.cli.console import StepKind, examples, write_json
from fathom.errors import BadInputError

if TYPE_CHECKING:
    from fathom.analysis.compare import GateResult

OVER = 1
EXAMPLES = examples(
    "fathom gate candidate.fathom --baseline main.fathom",
    "fathom gate --baseline a1.fathom a2.fathom --candidate b1.fathom b2.fathom --markdown comment.md",
    "fathom gate candidate.fathom --budgets budgets.toml --junit gate.xml   (absolute budgets only)",
)
SETTINGS = {"cls": SidesCommand}


def gate(
    soundings: list[Path] | None = Argument(None, metavar="[CANDIDATE]", help="A sounding, packed or not."),
    baseline: list[Path] | None = Option(None, help="Recordings of the baseline, for relative budgets."),
    candidate: list[Path] | None = Option(None, help="Recordings of the candidate, instead of the argument."),
    budgets: Path = Option(Path("fathom.toml"), help="TOML file with a [budgets] section."),
    junit: Path | None = Option(None, help="Write the result as JUnit XML to this file."),
    markdown: Path | None = Option(None, help="Write the result as Markdown to this file."),
    kind: StepKind = None,
    rank: int | None = Option(None, help="Rank to check; by default the first."),
    json: bool = Option(False, "--json", help="Print the whole result as JSON."),
) -> None:
    """Check recordings against the budgets in fathom.toml.

    A budget is exceeded only if its figure is beyond the limit by more than noise. Exit status: 0 if all
    budgets are met, 1 if one is exceeded or its figure is unknown, 2 if the input cannot be used.
    """
    result = _checked(budgets, [*(soundings or []), *(candidate or [])], baseline or [], kind, rank)
    _written(result, junit, markdown)
    from fathom.report import print_gate

    (write_json if json else print_gate)(result)
    raise typer.Exit(0 if result.passed else OVER)


def _checked(
    file: Path, candidate: list[Path], baseline: list[Path], kind: str | None, rank: int | None
) -> GateResult:
    from fathom.analysis.compare import budgets_in, check
    from fathom.api import compare
    from fathom.settings import settings_in

    settings = settings_in(file)
    if settings is None:
        raise BadInputError(f"{file} does not exist; write the budgets into it, or name it with --budgets.")
    if not candidate:
        raise BadInputError("Give the recordings of the candidate: `fathom gate candidate.fathom`.")
    limits = budgets_in(settings, str(file))
    return check(limits, compare(baseline or candidate, candidate, kind=kind, rank=rank), bool(baseline))


def _written(result: GateResult, junit: Path | None, markdown: Path | None) -> None:
    from fathom.report import gate_junit, gate_markdown, save_text

    if junit:
        save_text(gate_junit(result), junit)
    if markdown:
        save_text(gate_markdown(result), markdown)
