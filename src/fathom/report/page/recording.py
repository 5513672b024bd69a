"""The material of a page, and its sections."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fathom.machine.model import Machine
from fathom.report.page.figure import Figure

if TYPE_CHECKING:
    from fathom.analysis.measures import Portrait
    from fathom.analysis.results import Examination
    from fathom.sounding import Store

WIDTH = 10_000  # columns of a terminal's line that the browser wraps


@dataclass(frozen=True)
class Recording:
    """An examination, and what was recorded beneath it: kernels, tables, the machine with its ceilings."""

    examination: Examination
    portraits: list[Portrait] = field(default_factory=list)
    store: Store | None = None
    machine: Machine = field(default_factory=Machine)

    @property
    def noun(self) -> str:
        return self.examination.step.noun


@dataclass(frozen=True)
class Section:
    """A section of the page: a template of the same name as `id`, with what it shows."""

    id: str
    title: str
    content: dict[str, Any] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    note: str = ""
    brief: str = ""  # the title in the navigation, if it is shorter
