"""The folder of a recording, made anew."""

from __future__ import annotations

import shutil
from pathlib import Path

from fathom.errors import BadInputError
from fathom.replacing import Aside, require_replaceable


class NewFolder:
    """`path` with an empty `raw/`. What stood there is removed by `keep`, and put back by `undo`.

    Raises BadInputError where it exists, unless it may be replaced.
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
            raise BadInputError(f"{path} cannot be made: {error.strerror}.") from None

    def keep(self) -> Path:
        """Remove what was here before, and tell where `raw/` is."""
        if self._before:
            self._before.drop()
        return self.path / "raw"

    def undo(self) -> None:
        """Remove the folder, and put back what was here before."""
        shutil.rmtree(self.path)
        if self._before:
            self._before.restore()


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
