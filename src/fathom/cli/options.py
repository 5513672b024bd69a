"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Machine = Annotated[
    Path | None, typer.Option(help="A machine file whose ceilings stand in where the sounding holds none.")
]
