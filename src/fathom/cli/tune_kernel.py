"""`fathom tune kernel`: rank implementations of a function by proofs."""

from __future__ import annotations

from pathlib import Path

import typer
from typer import Argument, Option

from fathom.cli.console import examples, say, write_json
from fathom.errors import BadInputError

NOT_PROVEN, BAD_INPUT = 1, 2
EXAMPLES = examples(
    "fathom tune kernel norm.py:norm candidates/",
    "fathom tune kernel norm.py:norm candidates/ --budget 5 --memory 8 --json",
)


def kernel(
    reference: str = Argument(help="file.py:function to be replaced; its inputs are beside it."),
    directory: Path = Argument(help="Folder of candidates: Python files with a function of the same name."),
    budget_s: float = Option(
        20.0, "--budget", min=0, max=1e9, metavar="SECONDS", help="Time for timing one proof."
    ),
    limit_s: float = Option(
        300.0, "--limit", min=0, max=1e9, metavar="SECONDS", help="Maximum time of one proof."
    ),
    memory_gib: float = Option(
        16.0, "--memory", min=0, max=1e9, metavar="GIB", help="Maximum memory of a proof."
    ),
    margin: float = Option(
        0.01, min=0, max=1, help="Largest difference that counts as the same, as a share."
    ),
    sanitize: bool = Option(
        False, "--sanitize", help="First check the kernels with compute-sanitizer, as `fathom prove` does."
    ),
    fresh: str = Option("fork", help="How processes are started: fork is faster, spawn shares nothing."),
    json: bool = Option(False, "--json", help="Print the whole ranking as JSON."),
) -> None:
    """Rank implementations of a function: each is proven against it, on every shape.

    Candidates run in a sandbox: a separate process group without a network where the system permits it, with
    an empty folder, and limits of memory and time. Functions `inputs` and `inputs_NAME` beside the reference
    return the arguments of each shape. Exit status: 0 if a candidate is proven faster, 1 if none is, 2 if the
    input cannot be used.
    """
    from fathom.cli.progress import shown
    from fathom.report import print_ranking
    from fathom.tuner import Sandbox, rank_kernels

    try:
        sandbox = Sandbox(limit_s, memory_gib)
        with shown("starting") as seen:
            ranking = rank_kernels(
                reference, directory, sandbox, budget_s, margin, fresh, sanitize, seen.progress
            )
    except BadInputError as error:
        say(str(error))
        raise typer.Exit(BAD_INPUT) from None
    (write_json if json else print_ranking)(ranking)
    raise typer.Exit(0 if any(row.verdict == "faster" for row in ranking.rows) else NOT_PROVEN)
