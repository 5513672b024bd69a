"""Errors shown to users. Each message is one sentence: what is wrong, and what to do."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from errno import ENOSPC
from pathlib import Path

TRACEBACK = "Traceback (most recent call last):"
NAMED, WIDE = 4, 60  # names in a message, characters of a name


class FathomError(Exception):
    """Base of every error that Fathom raises on purpose; the command line prints it without a traceback."""


class BadInputError(FathomError):
    """A file or an argument cannot be used as given."""


class NotASoundingError(FathomError):
    """The path contains no sounding that this version can read."""


def file_error(path: object, error: OSError, action: str = "read") -> str:
    """Return a sentence for users: the file cannot be `action` (read, written, ...), why, and what to do."""
    file = Path(str(path))
    if isinstance(error, FileNotFoundError):
        missing = next((folder for folder in reversed(file.parents) if not folder.exists()), None)
        if missing is not None:
            why = f"the folder {missing} does not exist; create it, or give another path"
        else:
            why = "it does not exist; check the path"
    elif isinstance(error, PermissionError):
        why = "permission denied; change its permissions, or give another path"
    elif isinstance(error, IsADirectoryError):
        why = "it is a folder; give a file"
    elif isinstance(error, NotADirectoryError):
        why = "part of its path is a file, not a folder; give another path"
    elif error.errno == ENOSPC:
        why = "the disk is full; free some space, or give another path"
    else:
        why = f"{error.strerror or error}; check the path"
    return f"{path} cannot be {action}: {why}."


def unimportable(path: object, why: str) -> BadInputError:
    """Return the error for a file of another tool that cannot be imported."""
    return BadInputError(f"{path} cannot be imported: {why}.")


@contextmanager
def file_errors(
    path: object, action: str = "read", kind: type[FathomError] = BadInputError
) -> Iterator[None]:
    """Context manager that raises `kind`, with the sentence of `file_error`, instead of an OSError."""
    try:
        yield
    except OSError as error:
        raise kind(file_error(path, error, action)) from None


def nearest(name: str, known: Collection[str], listed: str = "") -> str:
    """Return the end of a sentence about an unknown name: the known one most alike, or `listed`, or all."""
    near = get_close_matches(name, known, n=1, cutoff=0.3)
    return f"the nearest is {near[0]}" if near else listed or f"choose from {', '.join(known)}"


def foreseen(error: Exception) -> str | None:
    """Return a sentence for an error of a file, or of polars in a damaged table; None for any other."""
    if type(error).__module__.startswith("polars."):
        return f"a table of the sounding is damaged ({first_line(error)}); record or import it again."
    if isinstance(error, OSError) and error.strerror:
        return file_error(error.filename or "a file", error, "used")
    return None


def no_match(noun: str, pattern: str, names: Sequence[str]) -> str:
    """Return the sentence for a pattern that no name matches; `names` are those that exist, largest first."""
    known = ", ".join(name if len(name) <= WIDE else f"{name[: WIDE - 1]}…" for name in names[:NAMED])
    return f"No {noun} matches '{pattern}'; the largest are {known}." if known else f"No {noun} was recorded."


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, without a full stop."""
    return (str(error).strip().splitlines() or ["no message"])[0].rstrip(".")


def raised(output: str) -> str:
    """Return the exception that ended a program in a sentence, with torch's advice; else its last line."""
    _, traceback, rest = re.sub(r"(?m)^\[rank\d+\]: ?", "", output).rpartition(TRACEBACK)
    message = next((line for line in rest.splitlines() if line[:1].strip()), "") if traceback else ""
    if not message:
        return last_line(output)
    says = re.split(r"(?<=[.!?]) (?=[A-Z])", message)[0]
    advice = re.search(r"To (?:avoid|fix|prevent) .+", rest.partition(message)[2])
    return f"{says} {advice[0]}" if advice else says


def last_line(output: str) -> str:
    """Return the last line that a program printed, which has its message."""
    return (output.strip().splitlines() or ["no message"])[-1]
