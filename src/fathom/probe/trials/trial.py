"""The interface of a trial."""

from __future__ import annotations

from types import SimpleNamespace

from fathom.probe.threads import get_ident, is_main

stepping = SimpleNamespace(thread=0)  # the thread of the last mark


class Trial:
    """A trial of one kind: its cause is removed for some steps. `why` says why it is impossible, if it is."""

    kind = ""

    def __init__(self) -> None:
        self.why = ""
        self.open = False

    def watch(self) -> None:
        """Observe the unchanged stretch that begins now."""

    def watched(self, steps: int) -> None:
        """Evaluate the unchanged stretch that ended after `steps` steps."""

    def begin(self, steps: int) -> None:
        """Remove the cause from now on, for about `steps` steps."""
        self.open = True

    def end(self) -> None:
        """Restore everything. May be called at any time, from any thread, and repeatedly."""
        self.open = False

    @property
    def settled(self) -> bool:
        """Whether the trial no longer affects steps."""
        return True

    def futile(self) -> str:
        """Return why continuing is useless, or "". Called after a few stretches."""
        return ""


def of_the_steps() -> bool:
    """Return whether this is the main thread or the one that runs the steps."""
    return is_main() or get_ident() == stepping.thread
