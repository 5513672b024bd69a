"""What a person, or another program, sees of an Examination. It computes no more than sums and shares."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import msgspec
from rich.console import Console

from fathom.analysis.results import Examination
from fathom.errors import BadInputError
from fathom.report.terminal import page

__all__ = ["print_report", "save_picture", "to_json"]

NARROW, PIPED, BROAD = 80, 100, 120
_ASCII = str.maketrans(
    {**dict.fromkeys("█▉▊▋▌▍▎▏", "#"), **dict(zip("▓▒░·–±µ…✗°", "=-.,-~u.x ", strict=True))}
)


def print_report(
    examination: Examination,
    console: Console | None = None,
    *,
    top: int | None = 12,
    rank: int | None = None,
    roofline: bool = False,
) -> None:
    """Print the report, 80 to 120 columns wide, in plain ASCII where the terminal knows no better.

    `top`: how many families of each group get a line of their own; None: all. `rank`: whose ledger to
    detail; the first's by default. `roofline`: with a table of what bounds each family. Raises BadInputError
    where `rank` was not recorded.
    """
    console = console or Console(highlight=False, soft_wrap=True)
    plain = console.options.ascii_only
    for line in page(examination, _width(console), top=top, rank=rank, with_roofline=roofline):
        if plain:
            line.plain = line.plain.translate(_ASCII)
        console.print(line, no_wrap=True, crop=False, overflow="ignore", highlight=False)


def to_json(examination: Examination) -> bytes:
    """The Examination as JSON; numbers are not rounded."""
    return msgspec.json.encode(examination)


def save_picture(
    examination: Examination,
    path: str | Path,
    *,
    top: int | None = 12,
    rank: int | None = None,
    roofline: bool = False,
) -> None:
    """Write the report as a picture: `.svg`, or `.html`.

    Raises BadInputError for another ending, and for a file that cannot be written.
    """
    path = Path(path)
    console = Console(record=True, width=PIPED, file=StringIO(), force_terminal=True, highlight=False)
    print_report(examination, console, top=top, rank=rank, roofline=roofline)
    if path.suffix not in (".svg", ".html"):
        raise BadInputError(f"{path} is neither .svg nor .html; name a file that ends in one of them.")
    title = str(examination.sounding.get("name") or "fathom report")
    try:
        path.write_text(console.export_svg(title=title) if path.suffix == ".svg" else console.export_html())
    except OSError as error:
        raise BadInputError(f"{path} cannot be written: {error.strerror}.") from None


def _width(console: Console) -> int:
    # Piped output has no width of its own: rich would fall back to 80 columns.
    width = console.width if console.is_terminal or console.record else PIPED
    return min(max(width, NARROW), BROAD)
