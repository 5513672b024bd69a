"""The referee's verdicts on techniques here: one JSON file per technique, under the machine's fingerprint."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from fathom.errors import file_error
from fathom.lab.surroundings import Here, why_not
from fathom.lab.technique import Technique
from fathom.machine import HOME, MachineFileError, home
from fathom.referee import Timing, Verdict


class Kept(msgspec.Struct):
    """A stored verdict, with versions of libraries at that time; `source` is the technique's digest."""

    technique: str
    source: str
    device: str
    taken_ns: int
    versions: dict[str, str]
    verdict: Verdict

    @property
    def last(self) -> Last:
        """The verdict in short."""
        chosen = next((c for c in self.verdict.timings if c.ratio == self.verdict.ratio), None)
        return Last(
            verdict=self.verdict.verdict,
            ratio=self.verdict.ratio,
            interval=self.verdict.interval,
            plain_of_ceiling=_of_ceiling(chosen.baseline) if chosen else None,
            tuned_of_ceiling=_of_ceiling(chosen.candidate) if chosen else None,
            device=self.device,
            taken_ns=self.taken_ns,
        )


class Last(msgspec.Struct):
    """The last verdict on a technique here, with the share of its ceiling that each form reached."""

    verdict: str
    ratio: float | None
    interval: list[float] | None
    plain_of_ceiling: float | None
    tuned_of_ceiling: float | None
    device: str
    taken_ns: int


class Listed(msgspec.Struct):
    """A technique in a list: `why_not` is None if it runs here, `last` if it was never proven here."""

    name: str
    group: str
    title: str
    saves: str
    gains: str
    why_not: str | None
    last: Last | None


def place(name: str, fingerprint: str, folder: Path | None = None) -> Path:
    """Return the path of the file with the result of a technique on this machine."""
    return (folder or home()) / "lab" / fingerprint / f"{name}.json"


def recall(technique: Technique, fingerprint: str, folder: Path | None = None) -> Kept | None:
    """Return the last result with the technique's present code, or None. Raises MachineFileError."""
    path = place(technique.name, fingerprint, folder)
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=Kept)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MachineFileError(file_error(path, error)) from None
    except (msgspec.DecodeError, ValueError, RecursionError):
        remedy = "delete it, and run the technique again"
        raise MachineFileError(f"{path} is not a lab result; {remedy}.") from None
    return kept if kept.source == technique.digest else None


def recalled(
    technique: Technique, fingerprint: str, say: Callable[[str], None], folder: Path | None = None
) -> Kept | None:
    """Return the result like `recall`, or None for a damaged file, which `say` reports."""
    try:
        return recall(technique, fingerprint, folder)
    except MachineFileError as error:
        say(str(error))
        return None


def keep(kept: Kept, fingerprint: str, folder: Path | None = None) -> Path:
    """Write the result atomically. Raises MachineFileError."""
    path = place(kept.technique, fingerprint, folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("wb", dir=path.parent, delete=False) as file:
            file.write(msgspec.json.encode(kept))
        os.replace(file.name, path)  # noqa: PTH105
    except OSError as error:
        why = f"The result cannot be stored in {path.parent}: {error.strerror}"
        raise MachineFileError(f"{why}; set ${HOME} to a writable folder.") from None
    return path


def listed(technique: Technique, fingerprint: str, at: Here, say: Callable[[str], None]) -> Listed:
    """Return the technique with its last verdict, and why it does not run. `say` reports damaged files."""
    kept = recalled(technique, fingerprint, say)
    header, last = technique.header, kept.last if kept else None
    reason = why_not(technique.needs, at)
    return Listed(technique.name, technique.group, header.title, header.saves, header.gains, reason, last)


def _of_ceiling(side: Timing) -> float | None:
    return side.ceiling.fraction if side.ceiling else None
