"""The trial `gc`: garbage collection is off."""

from __future__ import annotations

import sys
from gc import disable, enable, isenabled  # unhooked

from fathom.pristine import gc
from fathom.probe.trials.trial import Trial

SPARE = 0.2  # of a device's memory: with less, uncollected garbage could exhaust it
NONE = "no garbage was collected in the unmodified steps"
FULL = "less than a fifth of the device's memory is free, and garbage may contain tensors"


class Garbage(Trial):
    """Switches automatic collection off, and lets calls of `gc.collect` do nothing."""

    kind = "gc"

    def __init__(self) -> None:
        super().__init__()
        self._off = False
        self._before = self._seen = 0

    def watch(self) -> None:
        self._before = _collections()

    def watched(self, steps: int) -> None:
        self._seen += _collections() - self._before

    def begin(self, steps: int) -> None:
        if _nearly_full():
            self.why = FULL
            return
        self.open = True
        if isenabled():
            self._off = True
            disable()

    def end(self) -> None:
        self.open = False
        if self._off:
            self._off = False
            enable()

    def wants(self, on: bool) -> None:
        """Note that the program switched collection on or off, which takes effect after the trial."""
        self._off = on

    def wanted(self) -> bool:
        """Return whether collection would be on without the trial."""
        return self._off

    def futile(self) -> str:
        return "" if self._seen else NONE


def _collections() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())


def _nearly_full() -> bool:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return False
    free, total = cuda.mem_get_info()
    return bool(free + cuda.memory_reserved() - cuda.memory_allocated() < SPARE * total)
