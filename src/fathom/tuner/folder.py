"""The folder of a search: whose it is, the time used so far, and its lock."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fathom.atomic import write_private
from fathom.errors import BadInputError, file_errors
from fathom.tuner.options import LEAST_RUN_S, LEAST_RUNS, Options

RESULT, SPENT = "tuned.json", "spent"


@contextmanager
def opened(folder: Path, command: list[str], options: Options) -> Iterator[Path]:
    """Context manager with the folder of this search, locked. Raises BadInputError if it is another's."""
    about = {"command": command, "cwd": str(Path.cwd()), "until": options.until, "step_on": options.step_on}
    file = folder / "search.json"
    with file_errors(folder, "used"):
        if options.replace and file.exists():
            shutil.rmtree(folder)
        if folder.exists() and any(folder.iterdir()) and not file.exists():
            raise BadInputError(f"{folder} is not the folder of a search; choose another with -o.")
        folder.mkdir(parents=True, exist_ok=True)
        if file.exists() and json.loads(file.read_text()) != about:
            raise BadInputError(
                f"{folder} holds the search of another command; choose another with -o, or add --replace."
            )
        _require_time(folder, options)
        write_private(file, json.dumps(about))
    with open(folder / "lock", "w") as lock:  # noqa: PTH123
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInputError(
                f"{folder} is in use by another search; wait for it, or choose another with -o."
            ) from None
        yield folder


def spent_s(folder: Path) -> float:
    """Return the seconds that earlier parts of this search used."""
    with suppress(OSError, ValueError):
        return float((folder / SPENT).read_text())
    return 0.0


def _require_time(folder: Path, options: Options) -> None:
    """Raise BadInputError if the search in this folder has ended, or has used the budget."""
    spent = spent_s(folder)
    if _ended(folder, options) or options.budget_s - spent < LEAST_RUNS * LEAST_RUN_S:
        raise BadInputError(
            f"{folder} holds this search, which used {spent:.0f} s; give a --budget above"
            f" {options.budget_s:.0f}s to go on with it, or add --replace to start again."
        )


def _ended(folder: Path, options: Options) -> bool:
    """Return whether a search with at least this budget has its result here."""
    with suppress(OSError, ValueError, KeyError):
        return float(json.loads((folder / RESULT).read_text())["budget_s"]) >= options.budget_s
    return False
