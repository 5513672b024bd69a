"""The material of a page, and its sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

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
    content: Mapping[str, object] = field(default_factory=dict)
    figures: Sequence[Figure[Any]] = ()
    note: str = ""
    brief: str = ""  # the title in the navigation, if it is shorter


@dataclass(frozen=True)
class Top:
    """The top of the page: the verdict, the facts of the recording, and the step's figures."""

    headline: str
    facts: Sequence[str]
    figures: Sequence[tuple[str, str]]  # each with its noun
    step: Sequence[str] = ()
    bound: str = ""
    requests: str = ""
    advice: str = ""
    reason: str = ""
    late: str = ""
    damaged: bool = False
    bar: Sequence[BarPart] = ()


class BarPart(NamedTuple):
    """A group of the ledger as a part of the bar at the top."""

    name: str
    share: str
    width: float  # per cent
    colour: str
