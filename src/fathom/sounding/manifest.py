"""The manifest of a sounding: command, machine, ranks, phases, versions, problems."""

from __future__ import annotations

from typing import Any

import msgspec

from fathom.sounding.schema import FORMAT
from fathom.version import VERSION


class Problem(msgspec.Struct, omit_defaults=True):
    """Something damaged or missing in the recording. Damaged records are left out of every sum."""

    what: str  # a short id: "bad-duration", "stream-overlap", "graph-without-kernels", ...
    text: str  # one sentence for people
    count: int = 1
    rank: int | None = None
    spoils: list[str] = []  # tables whose sums may be wrong because of it


class Rank(msgspec.Struct, omit_defaults=True):
    """One process of the program that ran steps."""

    rank: int
    pid: int | None = None
    host: str | None = None
    world: int | None = None
    devices: dict[int, str] = {}  # device index to name
    step_on: str | None = None  # the source of its steps: `source` in the table of steps
    clock_error_ns: int | None = None  # error of the offset between the host's and the profiler's clock
    facts: dict[str, Any] = {}  # from the probe: Python version, compiler, loaders, counter groups ...


class Phase(msgspec.Struct, omit_defaults=True):
    """An uninterrupted stretch of one phase in one rank; `burst` is the column `burst` of the tables."""

    rank: int
    phase: str
    burst: int
    start_ns: int
    end_ns: int
    steps: int = 0


class Manifest(msgspec.Struct):
    """Everything about a sounding that is not a table. Readers check `format` before they read the rest."""

    format: int = FORMAT
    fathom: str = VERSION
    name: str = ""
    made_by: str = "run"  # run, record, import
    created_ns: int = 0
    command: list[str] = []
    exit_status: int | None = None
    ended: str = "finished"  # finished, exited, exception, crashed, interrupted, killed, stopped, no-steps
    ranks: list[Rank] = []
    phases: list[Phase] = []
    versions: dict[str, str] = {}
    environment: dict[str, str] = {}
    parent: str | None = None
    problems: list[Problem] = []
    abstained: list[dict[str, str]] = []  # {"what", "why"}
    checksums: dict[str, int] = {}  # CRC-32 by file, like rank-0/steps.parquet
