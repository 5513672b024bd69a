"""`fathom bisect`: find the commit that slowed a step down."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from typer import Argument, Option

from fathom.cli.console import examples, write_json

EXAMPLES = examples(
    "fathom bisect --good v1.2 --bad HEAD -- python train.py",
    "fathom bisect --good v1.2 --bad main --link data --setup 'pip install -q .' -- python train.py",
    "fathom bisect --good v1.2 --bad HEAD --time command -- ./benchmark.sh",
)
SETTINGS = {"context_settings": {"allow_interspersed_args": False}}


def bisect(
    command: list[str] = Argument(help="The program and its arguments, after --.", metavar="COMMAND"),
    good: str = Option(..., help="A revision that is fast enough."),
    bad: str = Option("HEAD", help="A later revision that is slower."),
    time: Literal["steps", "command"] = Option(
        "steps", help="Time clean steps, or the whole command from start to end."
    ),
    setup: str | None = Option(None, help="Shell command that prepares a revision, such as a build."),
    link: list[Path] | None = Option(
        None,
        help="Untracked file or directory that the command needs, from the repository's root (repeatable).",
    ),
    margin: float = Option(0.01, help="Largest difference that counts as the same, as a share."),
    pairs: int = Option(12, min=5, help="Maximum number of pairs of runs per revision."),
    patience_s: float = Option(3600.0, "--patience", metavar="SECONDS", help="Maximum time for one run."),
    json: bool = Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Find the commit that slowed a step down.

    `git bisect` chooses the revisions. Each one runs alternately with the good one, in fresh processes, at
    least five times, until the 99 % interval of their ratio is on one side of the midpoint between good and
    bad. Revisions that fail to run are skipped. All runs use temporary worktrees; your files do not change.
    """
    from fathom.cli.progress import shown
    from fathom.referee import Search, find_commit
    from fathom.report import print_bisection

    with shown("preparing worktrees") as seen:
        search = Search(
            command, time, setup, tuple(link or ()), margin, pairs, patience_s, Path.cwd(),
            progress=seen.progress, tell=seen.tell,
        )  # fmt: skip
        result = find_commit(search, good, bad)
    (write_json if json else print_bisection)(result)
