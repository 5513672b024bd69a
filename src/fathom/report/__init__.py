"""Renderings of an Examination for people and programs; nothing is computed here but sums and shares."""

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
    """Print the report, 80 to 120 columns wide; in plain ASCII on terminals without Unicode.

    `top`: how many families of a group get their own line; None for all. `rank`: the rank whose ledger is
    printed, by default the first. `roofline` adds a table of the ceiling that bounds each family, `profiled`
    the ledger of the profiled steps. Raises BadInputError if `rank` was not recorded.
    """
    from fathom.report.terminal import page  # imports polars, which `fathom machine` does without

    console = console_or_default(console)
    lines = page(examination, cells(console), top=top, rank=rank, with_roofline=roofline, profiled=profiled)
    put(lines, console)


def to_json(examination: Examination) -> bytes:
    """Encode the Examination as JSON, without rounding numbers."""
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
    """Write the report as a picture, `.svg` or `.html`.

    Raises BadInputError for any other suffix and for a file that cannot be written.
    """
    path = Path(path)
    console = Console(record=True, width=PIPED, file=StringIO(), force_terminal=True, highlight=False)
    print_report(examination, console, top=top, rank=rank, roofline=roofline, profiled=profiled)
    if path.suffix not in (".svg", ".html"):
        raise BadInputError(f"{path} is neither .svg nor .html; give a file name that ends in one of them.")
    title = str(examination.sounding.get("name") or "fathom report")
    try:
        path.write_text(console.export_svg(title=title) if path.suffix == ".svg" else console.export_html())
    except OSError as error:
        raise BadInputError(f"{path} cannot be written: {error.strerror}.") from None
