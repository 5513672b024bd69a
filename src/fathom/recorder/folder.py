"""The folder of a recording, made anew."""

from __future__ import annotations

import shutil
from pathlib import Path

from fathom.errors import BadInputError
from fathom.replacing import require_replaceable


def new_folder(folder: Path, replace: bool) -> Path:
    """Make `folder` with an empty `raw/`. Raises BadInputError where it exists, unless it may be replaced."""
    check_free(folder, replace)
    try:
        if folder.exists():
            shutil.rmtree(folder)
        (folder / "raw").mkdir(parents=True)
    except OSError as error:
        raise BadInputError(f"{folder} cannot be made: {error.strerror}.") from None
    return folder


def check_free(folder: Path, replace: bool) -> None:
    """Raises BadInputError where something is there that may not be replaced."""
    if not folder.exists():
        return
    if not replace:
        raise BadInputError(
            f"{folder} exists already; choose another name with -o, or overwrite it with --replace"
            " (in Python: replace=True)."
        )
    require_replaceable(folder)
