"""`fathom pack`: pack a sounding into one file."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Option

from fathom.errors import BadInputError
from fathom.visible import visible_line

EXAMPLES = "Example: fathom pack train.fathom   (then, elsewhere: fathom report train.fathom.zip)"


def pack(
    sounding: Path = Argument(help="A sounding: NAME.fathom."),
    output: Path | None = Option(
        None, "-o", "--output", help="The file to write. [default: NAME.fathom.zip]"
    ),
    folded: bool = Option(False, "--folded", help="Keep counters per kernel family without their samples."),
) -> None:
    """Pack a sounding into one file, which every command opens directly."""
    from fathom.sounding import open_store, packed_name
    from fathom.sounding import pack as pack_folder

    store = open_store(sounding).verify()
    if sounding.is_file() and output is None and not folded:
        raise BadInputError(f"{sounding} is packed already; open it with `fathom report {sounding}`.")
    if not folded:
        print(visible_line(str(pack_folder(store.path, output or packed_name(sounding)))))
        return
    from tempfile import TemporaryDirectory

    from fathom.cli.progress import waiting
    from fathom.recorder import folded as fold

    with TemporaryDirectory() as scratch:
        with waiting("folding counters"):
            small = fold(store, Path(scratch) / "folded.fathom")
        print(visible_line(str(pack_folder(small.path, output or packed_name(sounding)))))
