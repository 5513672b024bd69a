"""`fathom report`: where the time of a step goes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from typer import Option

from fathom.cli.console import Machine, On, Price, SoundingPath, StepKind, examples, page_path, write_json
from fathom.visible import visible_line

By = Literal["kernel", "launch"]
EXAMPLES = examples(
    "fathom report train.fathom --roofline",
    "fathom report train.fathom --by launch",
    "fathom report train.fathom --html train.html",
    "fathom report serve.fathom --kind prefill",
    "fathom report train.fathom --price 3.50/h",
)


def report(
    sounding: SoundingPath,
    json: bool = Option(False, "--json", help="Print the whole examination as JSON."),
    svg: Path | None = Option(None, help="Write the report as a picture to this .svg file."),
    html: Path | None = Option(None, help="Write the report as one page to this .html file."),
    figures: Path | None = Option(None, help="Write each figure as PNG and SVG into this directory."),
    rank: int | None = Option(None, help="Rank whose ledger is shown; by default the first."),
    roofline: bool = Option(False, help="Add a table of the ceiling of each family, and its share of it."),
    profiled: bool = Option(
        False, "--profiled", help="Add the table of the profiled steps, overhead included."
    ),
    kind: StepKind = None,
    machine: Machine = None,
    price: Price = None,
    on: On = "",
    by: By = Option("kernel", help="A row for each kernel name, or for each name and launch shape."),
    every: bool = Option(False, "--all", help="Show every family on its own line."),
) -> None:
    """Show where the time of a step goes."""
    from fathom.api import open
    from fathom.cli.progress import ranks_shown
    from fathom.report import View, print_report, save_picture

    opened = open(sounding, machine=machine)
    with ranks_shown(opened, on):
        examination = opened.examine(kind, price)
    view = View(rank=rank, roofline=roofline, profiled=profiled, by_launch=by == "launch")
    if every:
        view["top"] = None
    if svg:
        save_picture(examination, svg, **view)
    page = html and page_path(html)
    if page or figures:
        from fathom.report import save_figures, save_page  # imported here, because pages need the checks

        recording = opened.recording(examination)
        if page:
            save_page(recording, page)
        if figures:
            save_figures(recording, figures)
    if json:
        write_json(examination)
    elif written := [path for path in (svg, page, figures) if path]:
        print(*(visible_line(str(path)) for path in written), sep="\n")
    else:
        print_report(examination, **view)
