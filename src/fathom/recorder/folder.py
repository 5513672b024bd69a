"""The folder of a recording, made anew."""

from __future__ import annotations

import shutil
from pathlib import Path

from fathom.errors import BadInputError


def new_folder(folder: Path, replace: bool) -> Path:
    """Make `folder` with an empty `raw/`. Raises BadInputError where it exists, unless it may be replaced."""
    if folder.exists() and not replace:
        raise BadInputError(
            f"{folder} exists already; choose another name with -o, or overwrite it with --replace."
        )
    try:
        if folder.exists():
            _remove(folder)
        (folder / "raw").mkdir(parents=True)
    except OSError as error:
        raise BadInputError(f"{folder} cannot be made: {error.strerror}.") from None
    return folder


def _remove(folder: Path) -> None:
    if not ((folder / "manifest.json").exists() or (folder / "raw").is_dir()):
        raise BadInputError(
            f"{folder} is not a sounding, so --replace leaves it alone; choose another name with -o."
        )
    shutil.rmtree(folder)
