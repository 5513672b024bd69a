"""`fathom open`: the report as a page in the browser."""

from __future__ import annotations

from pathlib import Path

from typer import Option

from fathom.cli.console import Machine, Price, SoundingPath, StepKind, examples, say

EXAMPLES = examples("fathom open train.fathom", "fathom open train.fathom --to train.html")


def open_(
    sounding: SoundingPath,
    to: Path | None = Option(None, help="Path of the page; by default a temporary file."),
    kind: StepKind = None,
    machine: Machine = None,
    price: Price = None,
) -> None:
    """Show the report of a sounding as a page in the browser."""
    import tempfile
    import webbrowser

    from fathom.api import open
    from fathom.report import save_page

    opened = open(sounding, machine=machine)
    recording = opened.recording(opened.examine(kind, price))
    path = (
        to
        or Path(tempfile.mkdtemp(prefix="fathom-page-")) / f"{sounding.name.split('.')[0] or 'report'}.html"
    )
    save_page(recording, path)
    if not webbrowser.open(path.resolve().as_uri()):
        say("no browser was found; open the page yourself:")
    print(path)
