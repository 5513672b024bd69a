"""The content that exports to other tools share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fathom.analysis.results import Examination
from fathom.atomic import atomic_write
from fathom.errors import file_errors
from fathom.sounding import Store


@dataclass
class Exported:
    """A sounding and its examination."""

    store: Store
    examination: Examination

    @property
    def span(self) -> tuple[int, int]:
        """Start and end of the recording in ns, as its phases note them."""
        phases = self.store.manifest.phases
        return min((p.start_ns for p in phases), default=0), max((p.end_ns for p in phases), default=0)


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """Give the path of a file that replaces `path` at the end. Raises BadInputError if that fails."""
    with file_errors(path, "written"), atomic_write(path) as part:
        yield Path(part)
