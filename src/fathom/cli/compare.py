"""`fathom compare`: what changed between recordings, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer import Argument, Option
from typer.core import TyperCommand

from fathom.cli.console import StepKind, examples, page_path, write_json
from fathom.errors import BadInputError
from fathom.visible import visible_line

EXAMPLES = examples(
    "fathom compare before.fathom after.fathom",
    "fathom compare --baseline a1.fathom a2.fathom --candidate b1.fathom b2.fathom",
    "fathom compare before.fathom after.fathom --html changes.html",
)
_SIDES = ("--baseline", "--candidate")


class SidesCommand(TyperCommand):
    """Accept several values behind --baseline and --candidate, as in `--baseline a1 a2`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, repeated(args))


SETTINGS = {"cls": SidesCommand}


def repeated(args: list[str]) -> list[str]:
    """Return the arguments with the option of a side repeated before each of its values."""
    result: list[str] = []
    side, first = "", False
    for word in args:
        if word.startswith("-"):
            side, first = (word if word in _SIDES else ""), True
        elif side and not first:
            result.append(side)
        else:
            first = False
        result.append(word)
    return result


def compare(
    soundings: list[Path] | None = Argument(
        None, metavar="[BASELINE CANDIDATE]", help="Two soundings, packed or not."
    ),
    baseline: list[Path] | None = Option(None, help="Recordings of the baseline, instead of the arguments."),
    candidate: list[Path] | None = Option(None, help="Recordings of the candidate."),
    kind: StepKind = None,
    rank: int | None = Option(None, help="Rank to compare; by default the first."),
    margin: float = Option(0.01, help="Largest difference that counts as the same, as a share."),
    json: bool = Option(False, "--json", help="Print the whole comparison as JSON."),
    html: Path | None = Option(None, help="Write the comparison as one page to this .html file."),
    every: bool = Option(False, "--all", help="Show every entry that moved, cause and figure."),
) -> None:
    """Compare recordings: which entries of the step changed by more than noise, and why.

    The changes of all entries add up to that of the step. Entries are aligned by module, op and kernel, even
    if names or launch shapes changed.
    """
    from fathom.api import compare as compare_soundings
    from fathom.report import print_sounding_comparison, save_comparison

    sides = sides_of(soundings, baseline, candidate)
    result = compare_soundings(*sides, kind=kind, rank=rank, margin=margin)
    page = html and page_path(html)
    if page:
        save_comparison(result, page)
    if json:
        write_json(result)
    elif page:
        print(visible_line(str(page)))
    else:
        print_sounding_comparison(result, top=None if every else 12)


def sides_of(
    soundings: list[Path] | None, baseline: list[Path] | None, candidate: list[Path] | None
) -> tuple[list[Path], list[Path]]:
    """Return the recordings of both sides. Raises BadInputError unless each side has some."""
    if baseline and candidate and not soundings:
        return baseline, candidate
    if soundings and len(soundings) == 2 and not baseline and not candidate:
        return soundings[:1], soundings[1:]
    raise BadInputError(
        "Give a baseline and a candidate: `fathom compare A B`, or `--baseline A1 A2 --candidate B1 B2`."
    )
