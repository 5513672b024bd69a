"""Recordings and traces, each examined once for all tests of a worker that look at it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from fathom.analysis.results import Examination
from fathom.diagnosis.examine import examine
from fathom.sounding import Store, import_traces
from faults.examined import examinations
from faults.kept import archives
from tests.support.paths import RECORDINGS, TRACES

SCRATCH = TemporaryDirectory(prefix="fathom-tests-")


def _archive(path: Path) -> Any:
    name = path.name.split(".tar")[0]
    return pytest.param(path, id=name, marks=pytest.mark.xdist_group(f"archive {name}"))


# The archives of the suite of faults as parameters; tests of one archive share a worker, longest first.
ARCHIVES = [_archive(path) for path in sorted(archives(RECORDINGS), key=lambda path: -path.stat().st_size)]


@cache
def of_archive(archive: Path) -> dict[str, Examination]:
    """Recordings of one archive by name, GROUP.NAME.FORM.SEVERITY: all forms of every third program.

    `python -m faults.score` examines them all, and is run for every rule that is added.
    """
    return dict(examinations(archive, every=3))


def on_trace(name: str) -> pytest.MarkDecorator:
    """Tests of one of the shared traces share a worker."""
    return pytest.mark.xdist_group(f"trace {name}")


def on_traces(names: Iterable[str]) -> list[Any]:
    """Shared traces as parameters."""
    return [pytest.param(name, marks=on_trace(name)) for name in names]


@cache
def imported(name: str) -> Store:
    """One of the shared traces as a sounding."""
    return import_traces([TRACES / f"{name}.json.gz"], Path(SCRATCH.name) / f"{name}.fathom")


@cache
def of_trace(name: str) -> Examination:
    """One of the shared traces, examined."""
    return examine(imported(name))
