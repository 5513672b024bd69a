"""Progress of long commands: a status line or a bar on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from fathom.cli.console import say
from fathom.errors import BadInputError
from fathom.visible import visible_line

if TYPE_CHECKING:
    from fathom.api import Sounding
    from fathom.gauges import GaugeProgress, MeasurementPlan
    from fathom.machine import Ceiling, Missing

PATIENT_S = 2.0  # work that takes less time shows no progress
QUIET_S = 10.0  # between two lines if there is no terminal


@dataclass(frozen=True)
class Messages:
    """Two functions: `progress` prints a line that replaces the last one, `tell` a line that stays."""

    progress: Callable[[str], None]
    tell: Callable[[str], None]


@contextmanager
def shown(first: str) -> Iterator[Messages]:
    """Context manager that shows progress on standard error, starting with the line `first`."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Messages(_lines(), say)
        return
    with console.status(first) as status:
        yield Messages(
            status.update, lambda text: console.print(f"fathom: {text}", markup=False, highlight=False)
        )


@contextmanager
def ranks_shown(sounding: Sounding, on: str = "") -> Iterator[None]:
    """Context manager that shows how many ranks of a large job have been analysed.

    `on` is where: "" for this machine, or "ray". Raises BadInputError for anything else.
    """
    from fathom.analysis import Spread, is_large

    if on not in ("", "ray"):
        raise BadInputError(f"--on {on}: ranks can only be divided among a Ray cluster; write --on ray.")
    if not is_large(sounding.store):
        yield
        return
    with shown("reading the collectives of all ranks") as messages:

        def progress(done: int, of: int) -> None:
            messages.progress(f"{done:,} of {of:,} ranks analysed")

        sounding.spread = Spread(on, progress)
        yield


@contextmanager
def waiting(doing: str, stream: TextIO | None = None) -> Iterator[None]:
    """On a terminal, show `doing` and its duration after PATIENT_S; erase the line at the end."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield
        return
    over = threading.Event()
    line = threading.Thread(target=count, args=(doing, stream, over.wait, time.monotonic), daemon=True)
    line.start()
    try:
        yield
    finally:
        over.set()
        line.join()


def count(doing: str, stream: TextIO, over: Callable[[float], bool], clock: Callable[[], float]) -> None:
    """Rewrite the line each second until `over(seconds)`, which waits that long, returns True."""
    begun = clock()
    if over(PATIENT_S):
        return
    while True:
        print(f"\rfathom: {visible_line(doing)}, {clock() - begun:.0f} s", end="", file=stream, flush=True)
        if over(1.0):
            break
    print("\r\x1b[K", end="", file=stream, flush=True)


def _lines() -> Callable[[str], None]:
    """Return a function that prints at most one line in QUIET_S seconds, the first after QUIET_S."""
    last = time.monotonic()

    def progress(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= QUIET_S:
            last = time.monotonic()
            say(text)

    return progress


def measured(plan: MeasurementPlan) -> tuple[list[Ceiling], list[Missing]]:
    """Measure `plan` with a bar on standard error, or with occasional lines if that is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    from fathom import gauges

    columns = (TextColumn("{task.description:32}"), BarColumn(), TextColumn("{task.fields[left]}"))
    console, quiet = Console(stderr=True), _lines()
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=gauges.seconds(plan), left="")

        def show(now: GaugeProgress) -> None:
            where = "" if now.device is None else f" on GPU {now.device}"
            left = f"about {max(now.total_s - now.done_s, 1):.0f} s left"
            bar.update(task, description=now.name + where, completed=now.done_s, left=left)
            if not console.is_terminal:
                quiet(f"measuring {now.name}{where}, {left}")

        return gauges.measure(plan, show)
