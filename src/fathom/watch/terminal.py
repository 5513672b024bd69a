"""Show a running program: a full-screen page on a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import select
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console, Group
from rich.live import Live as Screen

from fathom.analysis.live import Live
from fathom.report import live_events, live_line, live_page
from fathom.watch.watch import Watch

PERIOD = 1.0  # seconds between two readings
KEYS = "q quit · t record a timeline now"
Publish = Callable[[Live], None]


def on_screen(watch: Watch, publish: Publish, console: Console, note: str = "") -> None:
    """Show the page until the program ends, or the user presses q or Ctrl-C; then leave it on the screen."""
    keys = " · ".join(filter(None, (KEYS, note)))
    screen = Screen(console=console, screen=True, auto_refresh=False)
    with contextlib.suppress(KeyboardInterrupt), keyboard() as wait, screen:
        while not watch.over:
            page = live_page(_look(watch, publish), console.width, console.height, keys)
            screen.update(Group(*page), refresh=True)
            key = wait(PERIOD)
            if key == "t":
                watch.request()
            if key == "q":
                break
    print_page(_look(watch, publish), console)


def print_page(live: Live, console: Console) -> None:
    for line in live_page(live, min(console.width, 120), 1000):
        console.print(line, no_wrap=True, crop=False, highlight=False)


def in_lines(
    watch: Watch, publish: Publish, write: Callable[[Live | None, Live, bool], None], every: float
) -> None:
    """Call `write(before, now, due)` after each reading; `due` after each `every` seconds and at the end."""
    before, due = None, 0.0
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            live = _look(watch, publish)
            over = watch.over
            now = time.monotonic()
            write(before, live, over or now >= due)
            due = now + every if now >= due else due
            if over:
                break
            before = live
            time.sleep(PERIOD)


def plain(before: Live | None, live: Live, due: bool) -> None:
    """Print the events since the last view, and the state if it is due."""
    for line in live_events(before, live):
        print(line, flush=True)
    if due:
        print(live_line(live), flush=True)


def _look(watch: Watch, publish: Publish) -> Live:
    watch.poll()
    live = watch.view()
    publish(live)
    return live


@contextlib.contextmanager
def keyboard() -> Iterator[Callable[[float], str]]:
    """Context manager that yields a function, which waits up to `seconds` for a key and returns it or ""."""
    try:
        import termios
        import tty

        file = sys.stdin.fileno()
        before: list[Any] = termios.tcgetattr(file)
    except Exception:  # no terminal to read from
        yield _sleep
        return
    try:
        tty.setcbreak(file)
        yield _key
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)


def _key(seconds: float) -> str:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return sys.stdin.read(1) if ready else ""


def _sleep(seconds: float) -> str:
    time.sleep(seconds)
    return ""
