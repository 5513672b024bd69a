"""Places in a program's source that settings act on, as the probe recorded them (`probe/knobs/sites.py`)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec


class Frame(msgspec.Struct, array_like=True, frozen=True):
    """A frame of a stack: its source, its function, and the call that it is in; columns are in bytes."""

    file: str
    function: str
    begins: int
    line: int
    end_line: int | None = None
    column: int | None = None
    end_column: int | None = None


class Place(msgspec.Struct, frozen=True):
    """The construction of a loader or an optimizer, or a module's first outermost call.

    `stack` has the innermost frame first, `about` the values in effect.
    """

    kind: str
    type: str
    stack: tuple[Frame, ...]
    about: dict[str, Any] = {}
    parameters: tuple[str, ...] = ()


class Sites(msgspec.Struct, frozen=True):
    """The places of a process. `sources` has the checksum of each file, `effects` the settings."""

    main: str | None
    sources: dict[str, int | None]
    places: tuple[Place, ...]
    steps: tuple[tuple[Frame, ...], ...]
    effects: dict[str, Any]

    def of(self, kind: str) -> list[Place]:
        """Return the places of a kind."""
        return [place for place in self.places if place.kind == kind]


def read_sites(raw: Path) -> list[Sites]:
    """Read the places of all processes that ran steps, and wrote them before they were ended."""
    read = []
    for path in sorted(raw.glob("sites-*.json")):
        with suppress(msgspec.DecodeError):
            read.append(msgspec.json.decode(path.read_bytes(), type=Sites))
    return [sites for sites in read if sites.steps]
