"""`fathom goodput`: productive time of a job over its wall time, restarts included."""

from __future__ import annotations

from typer import Argument, Option

from fathom.cli.console import examples, print_json
from fathom.errors import BadInputError

EXAMPLES = examples(
    "fathom goodput train.fathom",
    "fathom goodput train.fathom train-2.fathom train-3.fathom   (attempts of one job)",
)


def goodput(
    soundings: list[str] = Argument(
        metavar="SOUNDING…", help="Recordings at surface depth of a job's attempts, in any order."
    ),
    json: bool = Option(False, "--json", help="Print the entries as JSON."),
) -> None:
    """Split the wall time of a job: productive steps, start-up, checkpoints, stalls, restarts."""
    from rich.console import Console

    from fathom.analysis import goodput_of
    from fathom.report import print_goodput
    from fathom.sounding import open_store

    result = goodput_of([open_store(path) for path in soundings])
    if result is None:
        raise BadInputError(
            "Goodput needs recordings of `fathom run --depth surface` whose program took steps and ended."
        )
    if json:
        print_json(result)
    else:
        print_goodput(result, Console(highlight=False))
