"""`transformers serve` whose hooks of Fathom come off and go on again at a signal, in a recorded process.

    fathom run --depth surface -- python -m benchmarks.serving.switched serve MODEL ...

SIGRTMIN takes them off and SIGRTMIN + 1 puts them back; the state is written to the file SWITCH_FILE. It must
happen while no request is served. Without hooks, the process runs the code of a plain server.
"""

from __future__ import annotations

import functools
import gc
import os
import signal
from pathlib import Path
from typing import Any

from benchmarks.serving import faulty
from fathom.probe.engines import http, sockets
from fathom.probe.hooks.patches import _MISSING

OFF, ON = signal.SIGRTMIN, signal.SIGRTMIN + 1


class Switch:
    """The hooks of this process."""

    def __init__(self, state: Path) -> None:
        self.on, self.state = True, state
        self._collections: list[Any] = []
        self._application = http.application
        http.application = self._either
        signal.signal(OFF, lambda *_: self.turn(on=False))
        signal.signal(ON, lambda *_: self.turn(on=True))

    def _either(self, serving: Any, app: Any) -> Any:
        """Return an application that is recorded only while the hooks are on."""
        recorded = self._application(serving, app)

        async def either(*args: Any) -> Any:
            return await (recorded if self.on else app)(*args)

        return either

    def turn(self, on: bool) -> None:
        """Put the hooks on or off."""
        if on != self.on:
            self.on = on
            self._patch(on)
            self._stamp(on)
            self._time_collections(on)
        self.state.write_text(str(int(on)))

    def _patch(self, on: bool) -> None:
        from fathom.probe.hooks import install  # which imports torch, whose import begins the recording

        for owner, name, before, ours in install._patches._done:
            here, there = (before, ours) if on else (ours, before)
            if vars(owner).get(name, _MISSING) is not here:  # Fathom has removed this hook for good
                continue
            if there is _MISSING:  # inherited
                delattr(owner, name)
            else:
                setattr(owner, name, there)

    def _stamp(self, on: bool) -> None:
        """Have the kernel stamp packets or not."""
        if on:
            sockets.listen()
        else:
            sockets._kept.pop().close()

    def _time_collections(self, on: bool) -> None:
        if on:
            gc.callbacks.extend(self._collections)
        else:
            self._collections = [each for each in gc.callbacks if isinstance(each, functools.partial)]
            assert len(self._collections) == 1, gc.callbacks
            gc.callbacks.remove(self._collections[0])


if __name__ == "__main__":
    Switch(Path(os.environ["SWITCH_FILE"]))
    faulty.main()
