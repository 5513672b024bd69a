"""The interface of a trial."""

from __future__ import annotations

import threading


class Trial:
    """Something skipped for some steps. `why` says why it cannot be tried, once known."""

    kind = ""

    def __init__(self) -> None:
        self.why = ""
        self.open = False

    def watch(self) -> None:
        """An unchanged stretch begins."""

    def watched(self, steps: int) -> None:
        """The unchanged stretch is over; it had `steps` steps."""

    def begin(self, steps: int) -> None:
        """Skip it from here on, for about `steps` steps."""
        self.open = True

    def end(self) -> None:
        """Restore everything. May be called at any time, from any thread, and repeatedly."""
        self.open = False

    @property
    def settled(self) -> bool:
        """Whether the trial no longer affects steps."""
        return True

    def futile(self) -> str:
        """Return why continuing is useless, asked after a few stretches."""
        return ""


def of_the_steps() -> bool:
    """Whether this is the thread that runs the steps: other threads do not delay them."""
    return threading.current_thread() is threading.main_thread() or threading.get_ident() == stepping.thread


class _Stepping:
    """The thread of the last mark."""

    thread = 0


stepping = _Stepping()
