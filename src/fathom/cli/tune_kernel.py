"""`fathom tune kernel`: rank implementations of a function by proofs, and search their parameters."""

from __future__ import annotations

from pathlib import Path

import typer
from typer import Argument, Option

from fathom.cli.console import examples, seconds_of, write_json
from fathom.errors import BadInputError

NOT_PROVEN = 1
HELP = """Rank implementations of a function: each is proven against it, on every shape.

Candidates run in a sandbox: a separate process group without a network where the system permits it, with
an empty folder, and limits of memory and time. Functions `inputs` and `inputs_NAME` beside the reference
return the arguments of each shape.

With --search, proposals of the parameters that candidates declare are tried too: `parameters = {"BLOCK":
[64, 128]}` names constants of the file, or literal arguments of its calls. Triton's num_warps, num_stages
and BLOCK sizes need no declaration. With --technique, the reference and the candidate are the plain and the
tuned form of a technique of the lab. Each proposal's results are compared; the fastest one is proven.

Exit status: 0 if a candidate is proven faster, 1 if none is, 2 if the input cannot be used."""
EXAMPLES = examples(
    "fathom tune kernel norm.py:norm candidates/",
    "fathom tune kernel norm.py:norm candidates/ --budget 5 --memory 8 --json",
    "fathom tune kernel norm.py:norm candidates/ --search --time 5m -o best.py",
    "fathom tune kernel --technique cache-blocks --time 60s",
)


def kernel(
    reference: str | None = Argument(None, help="file.py:function to be replaced; its inputs are beside it."),
    directory: Path | None = Argument(
        None, help="Folder of candidates: Python files with a function of the same name."
    ),
    search: bool = Option(False, "--search", help="Search the parameters that candidates declare."),
    technique: str | None = Option(
        None, metavar="NAME", help="Search the parameters of this technique of the lab instead."
    ),
    time: str = Option("60s", help="Time for proposals of a search: 90s, 10m, 1h."),
    seed: int = Option(0, help="Seed of a search."),
    output: Path | None = Option(
        None, "-o", "--output", help="File for the code that a search proved faster."
    ),
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
    """Rank implementations of a function by proofs."""
    from fathom.cli.progress import shown
    from fathom.report import print_ranking
    from fathom.tuner import Sandbox, Searching, rank_kernels, search_kernels, search_technique

    searches = _searches(reference, directory, search, technique, output)
    sandbox, time_s = Sandbox(limit_s, memory_gib), seconds_of(time, "--time")
    proof = {"budget_s": budget_s, "margin": margin, "fresh": fresh, "sanitize": sanitize}
    with shown("starting") as seen:
        how = Searching(time_s, seed, output, dict(proof), margin, progress=seen.progress)
        if technique is not None:
            ranking = search_technique(technique, sandbox, how)
        elif searches:
            ranking = search_kernels(str(reference), Path(str(directory)), sandbox, how)
        else:
            given = str(reference), Path(str(directory)), sandbox
            ranking = rank_kernels(*given, budget_s, margin, fresh, sanitize, seen.progress)
    (write_json if json else print_ranking)(ranking)
    raise typer.Exit(0 if ranking.proven else NOT_PROVEN)


def _searches(
    reference: str | None, directory: Path | None, search: bool, technique: str | None, output: Path | None
) -> bool:
    """Return whether parameters are searched. Raises BadInputError if the arguments do not fit together."""
    if technique is None and (reference is None or directory is None):
        raise BadInputError("Give the reference as file.py:function and the folder of candidates.")
    if technique is not None and reference is not None:
        raise BadInputError("--technique brings its reference and candidate; leave the arguments out.")
    searches = search or technique is not None
    if output is not None and not searches:
        raise BadInputError("-o writes the winner of a search; add --search.")
    return searches
