"""`fathom pack`: one file of a sounding."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example: fathom pack train.fathom   (then, elsewhere: fathom report train.fathom.zip)"


def pack(
    sounding: Annotated[Path, typer.Argument(help="A sounding: NAME.fathom.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The file to write. [default: NAME.fathom.zip]")
    ] = None,
) -> None:
    """Put a sounding into one file, which every command opens as it is."""
    from fathom.sounding import open_store
    from fathom.sounding import pack as pack_folder

    print(pack_folder(open_store(sounding).verify().path, output))
