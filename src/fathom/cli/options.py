"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
