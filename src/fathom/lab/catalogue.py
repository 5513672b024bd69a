"""Every technique by its name, group by group."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from fathom.errors import BadInputError
from fathom.lab.technique import Technique, techniques_of

GROUPS = ("memory", "compute", "schedule", "framework", "input")
FOLDER = Path(__file__).parent / "operations"


@cache
def techniques(folder: Path = FOLDER) -> dict[str, Technique]:
    """Return every technique by its name, group by group. Raises BadInputError if a file is damaged."""
    read = [technique for path in sorted(folder.glob("[!_]*.py")) for technique in techniques_of(path)]
    read.sort(key=lambda technique: (GROUPS.index(technique.group), technique.name))
    return {technique.name: technique for technique in read}


def chosen(names: Sequence[str], folder: Path = FOLDER) -> list[Technique]:
    """Return the techniques that `names` select by name or by group. Raises BadInputError."""
    every = techniques(folder)
    selected: dict[str, Technique] = {}
    for name in names:
        here = [t for t in every.values() if name.replace("_", "-") in (t.name, t.group)]
        if not here:
            similar = ", ".join(get_close_matches(name, every, n=3, cutoff=0.4))
            instead = f"similar ones: {similar}" if similar else "`fathom lab list` shows all"
            raise BadInputError(f"There is no technique {name[:60]!r}; {instead}.")
        selected |= {technique.name: technique for technique in here}
    return list(selected.values())


def naming(kind: str, folder: Path = FOLDER) -> list[Technique]:
    """Return the techniques whose headers list this kind of finding."""
    return [technique for technique in techniques(folder).values() if kind in technique.header.findings]
