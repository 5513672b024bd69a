"""The processes of a proof, and the results fetched from them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from shutil import disk_usage
from typing import Any

from fathom.errors import BadInputError
from fathom.referee import address
from fathom.referee.compare.decode import Saved, read
from fathom.referee.launching import Launcher, Spawn
from fathom.referee.pair import Pair
from fathom.referee.turn import Turn
from fathom.referee.worker import SideError, SideProcess

BASELINE, CANDIDATE = "baseline", "candidate"
SHARED_MEMORY, ROOM = Path("/dev/shm"), 32 * 2**30
_TORCH = re.compile(r"^\s*(?:import|from)\s+torch\b", re.M)


class Sides:
    """Starts the sides of a pair. Results are exchanged through a temporary folder."""

    def __init__(
        self, pair: Pair, patience_s: float, launcher: Launcher | None = None, turn: Turn | None = None
    ) -> None:
        self.pair, self.patience_s, self.turn = pair, patience_s, turn or Turn()
        self._launcher = launcher or Spawn()
        self._folder = tempfile.TemporaryDirectory(prefix="fathom-", dir=_quickest())
        self._numbers = count()
        self.key: list[str] | None = None  # of the baseline's code
        self._preload = preloads(pair)

    def __enter__(self) -> Sides:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def start(self, side: str) -> SideProcess:
        """Start a process of the baseline or the candidate."""
        target = self.pair.plain if side == BASELINE else self.pair.tuned
        wanted = {"baseline": self.key} if side == CANDIDATE and self.key else {}
        return self.worker(self.spec(str(target)) | {"wanted": wanted})

    def worker(self, spec: dict[str, Any]) -> SideProcess:
        """Start a process for `spec`."""
        return SideProcess(spec, self.patience_s, self._launcher, self.turn)

    def spec(self, target: str, *, upcast: bool = False) -> dict[str, Any]:
        """Return the specification of a process for `target`; `upcast`: compute in float64."""
        pair = self.pair
        return {
            "target": target,
            "inputs": pair.inputs,
            "variants": pair.variants,
            "work": pair.work,
            "preload": self._preload,
            "upcast": upcast,
        }

    def compute(self, worker: SideProcess, seed: int, variant: str | None = None) -> Saved:
        """Call once with the inputs of `seed` and fetch the result."""
        worker.ask("place", seeds=[seed], variant=variant)
        worker.ask("go", latency="included")
        return self.save(worker, 0, seed, variant)

    def save(self, worker: SideProcess, index: int, seed: int, variant: str | None = None) -> Saved:
        """Fetch the result of one of the latest calls."""
        return self._fetched(worker, index=index, seed=seed, variant=variant)

    def held_result(self, worker: SideProcess, known: Saved | None = None) -> Saved:
        """Fetch the result that the process holds; return `known` instead if the bytes are equal.

        The process does not learn the result that its own is compared with.
        """
        answer = worker.ask("fingerprint")
        if known is not None and answer is not None and answer == known.fingerprint:
            return known
        return replace(self._fetched(worker), fingerprint=answer)

    def _fetched(self, worker: SideProcess, **which: Any) -> Saved:
        path = Path(self._folder.name) / f"{next(self._numbers)}.bin"
        answer = worker.ask("save", path=str(path), **which)
        with self.turn.computing():
            saved = read(answer, path)
            path.unlink()
        return saved


def _quickest() -> Path | None:
    """Return a folder in memory with enough free space; None for the default folder."""
    try:
        return SHARED_MEMORY if disk_usage(SHARED_MEMORY).free >= ROOM else None
    except OSError:
        return None


@contextmanager
def blaming_baseline() -> Iterator[None]:
    """Report failures of the baseline as bad input. Raises BadInputError."""
    try:
        yield
    except SideError as error:
        raise BadInputError(f"The baseline cannot be measured: {error}.") from None


def preloads(pair: Pair) -> Sequence[str]:
    """Return `["torch"]` if one of the files mentions it, so that both sides preload the same; else []."""
    places = {address.split(str(where))[0] for where in (pair.plain, pair.tuned, pair.inputs)}
    files = [Path(place) for place in places if place.endswith(".py")]
    return ["torch"] if any(_TORCH.search(file.read_text(errors="replace")) for file in files) else []
