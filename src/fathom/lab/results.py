"""The referee's verdicts on techniques here: one JSON file per technique, under the machine's fingerprint."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from fathom.lab.technique import Technique
from fathom.machine import HOME, MachineFileError, home
from fathom.referee import Verdict


class Kept(msgspec.Struct):
    """A verdict, with the versions it was reached with; `source` is the technique's digest."""

    technique: str
    source: str
    device: str
    taken_ns: int
    versions: dict[str, str]
    verdict: Verdict


def place(name: str, fingerprint: str, folder: Path | None = None) -> Path:
    """The file with the result of a technique on this machine."""
    return (folder or home()) / "lab" / fingerprint / f"{name}.json"


def recall(technique: Technique, fingerprint: str, folder: Path | None = None) -> Kept | None:
    """The last result with the technique's present code, or None. Raises MachineFileError."""
    path = place(technique.name, fingerprint, folder)
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=Kept)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MachineFileError(f"{path} cannot be read: {error.strerror}.") from None
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise MachineFileError(f"{path} is not a result of the lab; remove it, and run it again.") from None
    return kept if kept.source == technique.digest else None


def keep(kept: Kept, fingerprint: str, folder: Path | None = None) -> Path:
    """Write the result atomically. Raises MachineFileError."""
    path = place(kept.technique, fingerprint, folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("wb", dir=path.parent, delete=False) as file:
            file.write(msgspec.json.encode(kept))
        os.replace(file.name, path)  # noqa: PTH105
    except OSError as error:
        why = f"The result cannot be kept in {path.parent}: {error.strerror}"
        raise MachineFileError(f"{why}; name a folder that can be written in ${HOME}.") from None
    return path
