"""The recordings of the suite, examined: those that are kept, and the synthetic ones made on the spot."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from faults import kept
from faults.labels import FORMS, HERE, Suite, builders, programs
from faults.score import Case, case_of

if TYPE_CHECKING:
    from fathom.analysis.results import Examination

KEPT = HERE / "recordings"


def examined(folder: Path = KEPT) -> list[Case]:
    """Every recording that is there, and every synthetic one. Names of unknown programs raise KeyError."""
    return [*recorded(folder), *synthetic()]


def recorded(folder: Path, suite: Suite = programs) -> list[Case]:
    """The recordings of a folder."""
    return [case for archive in kept.archives(folder) for case in cases_of(archive, suite)]


def cases_of(archive: Path, suite: Suite = programs) -> list[Case]:
    """Every recording of one archive."""
    return cases(examinations(archive), suite)


def cases(result: Iterable[tuple[str, Examination]], suite: Suite = programs) -> list[Case]:
    """Examinations by the name of their recording, as cases."""
    known = {program.id: program for program in suite()}
    made = []
    for recording, examination in result:
        group, name, form, severity = recording.split(".")
        made.append(case_of(known[f"{group}/{name}"], form, int(severity), examination))
    return made


def examinations(archive: Path, every: int = 1) -> Iterator[tuple[str, Examination]]:
    """Names, GROUP.NAME.FORM.SEVERITY, and examinations: all forms of every `every`-th program."""
    import fathom

    with kept.unpacked(archive) as soundings:
        chosen = sorted({sounding.name.split(".")[1] for sounding in soundings})[::every]
        for sounding in (each for each in soundings if each.name.split(".")[1] in chosen):
            yield sounding.name, fathom.open(sounding).examine()


def synthetic() -> list[Case]:
    """Devices that are unwell, at every severity, and well."""
    from fathom.diagnosis import examine

    cases = []
    for builder in builders():
        build = importlib.import_module(builder.module).build
        for severity in builder.fault.severity:
            for form in FORMS:
                with tempfile.TemporaryDirectory() as scratch:
                    examination = examine(build(form, severity).write(Path(scratch) / "device.fathom"))
                cases.append(case_of(builder, form, severity, examination))
    return cases
