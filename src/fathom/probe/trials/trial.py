"""What one trial is."""

from __future__ import annotations

import threading


class Trial:
    """Something that is left out for some steps. `why` says why it cannot be tried, once that is known."""

    kind = ""

    def __init__(self) -> None:
        self.why = ""
        self.open = False

    def watch(self) -> None:
        """An unchanged stretch begins."""

    def watched(self, steps: int) -> None:
        """The unchanged stretch is over; it had so many steps."""

    def begin(self, steps: int) -> None:
        """Leave it out from here on, for about so many steps."""
        self.open = True

    def end(self) -> None:
        """Everything is as before. May be called at any time, from any thread, and twice."""
        self.open = False

    @property
    def settled(self) -> bool:
        """Whether nothing is left of the trial that makes steps unlike those before it."""
        return True

    def futile(self) -> str:
        """Why going on is of no use, asked after a few stretches."""
        return ""


def of_the_steps() -> bool:
    """Whether this is the thread that steps run in: what others do does not hold them up."""
    return threading.current_thread() is threading.main_thread() or threading.get_ident() == stepping.thread


class _Stepping:
    """The thread of the last mark."""

    thread = 0


stepping = _Stepping()
