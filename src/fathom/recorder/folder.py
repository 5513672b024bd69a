"""Create the folder of a recording."""

from __future__ import annotations

import shutil
from pathlib import Path

from fathom.errors import BadInputError
from fathom.replacing import Aside, require_replaceable


class NewFolder:
    """Creates `path` with an empty `raw/`. `keep` deletes the folder that it replaced, `undo` restores it.

    Raises BadInputError if `path` exists and may not be replaced.
    """

    def __init__(self, path: Path, replace: bool) -> None:
        check_free(path, replace)
        self.path = path
        self._before: Aside | None = None
        try:
            if path.exists():
                self._before = Aside(path)
            (path / "raw").mkdir(parents=True)
        except OSError as error:
            if self._before:
                self._before.restore()
            raise BadInputError(f"{path} cannot be created: {error.strerror}.") from None

    def keep(self) -> Path:
        """Delete the replaced folder, and return the path of `raw/`."""
        if self._before:
            self._before.drop()
        return self.path / "raw"

    def undo(self) -> None:
        """Delete the new folder, and restore the replaced one."""
        shutil.rmtree(self.path)
        if self._before:
            self._before.restore()


def check_free(folder: Path, replace: bool) -> None:
    """Raise BadInputError if `folder` exists and may not be replaced."""
    if not folder.exists():
        return
    if not replace:
        raise BadInputError(
            f"{folder} already exists; choose another name with -o, or overwrite it with --replace"
            " (in Python: replace=True)."
        )
    require_replaceable(folder)
