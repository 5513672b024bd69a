"""What a person, or another program, sees of an Examination. It computes no more than sums and shares."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from fathom.errors import BadInputError
from fathom.report.screen import PIPED, cells, console_or_default, put

if TYPE_CHECKING:
    from fathom.analysis.results import Examination

__all__ = ["print_report", "save_picture", "to_json"]


def print_report(
    examination: Examination,
    console: Console | None = None,
    *,
    top: int | None = 12,
    rank: int | None = None,
    roofline: bool = False,
    profiled: bool = False,
) -> None:
    """Print the report, 80 to 120 columns wide, in plain ASCII where the terminal knows no better.

    `top`: how many families of each group get a line of their own; None: all. `rank`: whose ledger to
    detail; the first's by default. `roofline`: with a table of what bounds each family;
    `profiled`: with the table of the profiled steps. Raises BadInputError
    where `rank` was not recorded.
    """
    from fathom.report.terminal import page  # needs the tables' library, which a look at a machine does not

    console = console_or_default(console)
    lines = page(examination, cells(console), top=top, rank=rank, with_roofline=roofline, profiled=profiled)
    put(lines, console)


def to_json(examination: Examination) -> bytes:
    """The Examination as JSON; numbers are not rounded."""
    import msgspec

    return msgspec.json.encode(examination)


def save_picture(
    examination: Examination,
    path: str | Path,
    *,
    top: int | None = 12,
    rank: int | None = None,
    roofline: bool = False,
    profiled: bool = False,
) -> None:
    """Write the report as a picture: `.svg`, or `.html`.

    Raises BadInputError for another ending, and for a file that cannot be written.
    """
    path = Path(path)
    console = Console(record=True, width=PIPED, file=StringIO(), force_terminal=True, highlight=False)
    print_report(examination, console, top=top, rank=rank, roofline=roofline, profiled=profiled)
    if path.suffix not in (".svg", ".html"):
        raise BadInputError(f"{path} is neither .svg nor .html; name a file that ends in one of them.")
    title = str(examination.sounding.get("name") or "fathom report")
    try:
        path.write_text(console.export_svg(title=title) if path.suffix == ".svg" else console.export_html())
    except OSError as error:
        raise BadInputError(f"{path} cannot be written: {error.strerror}.") from None
