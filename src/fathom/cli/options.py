"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

SoundingPath = Annotated[Path, typer.Argument(help="A sounding, packed or not.")]
PATTERN = "The family's name, a part of it, a pattern with * and ?, or a regular expression."
Replace = Annotated[bool, typer.Option("--replace", help="Overwrite the sounding if it exists.")]
Machine = Annotated[
    Path | None, typer.Option(help="A machine file, whose ceilings replace the recorded ones.")
]
Price = Annotated[
    str | None,
    typer.Option(help="Price of a GPU, like 3.50/h or 3.50 EUR/h; else `price` under [cost] in fathom.toml."),
]


def examples(*commands: str) -> str:
    """The text below a command's options, with a paragraph for each example."""
    return "\n\n".join(["Examples:", *commands])


def group(**options: Any) -> typer.Typer:
    """A group of commands."""
    return typer.Typer(
        add_completion=False,
        rich_markup_mode=None,  # its libraries take longer to import than all of Fathom
        context_settings={"help_option_names": ["-h", "--help"]},
        **options,
    )
