"""Record the current process: the implementation of `fathom.record`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fathom import probe
from fathom.machine import known_machine
from fathom.probe import current
from fathom.probe.frames import allow
from fathom.probe.inherited import variables
from fathom.recorder.counters import met
from fathom.recorder.finishing import finish
from fathom.recorder.launch import PACKAGE, RAW, NewFolder, write_launch
from fathom.recorder.plan import Plan
from fathom.recorder.supervise import Ending
from fathom.visible import visible_line

if TYPE_CHECKING:
    from fathom.sounding import Store

_SAMPLE = "from fathom.recorder.telemetry import main; import sys; main(*sys.argv[1:3])"


class SelfRecording:
    """Records this process from now on. If it is recorded already, prints that and does nothing."""

    def __init__(self, path: Path, plan: Plan, *, replace: bool = False) -> None:
        self.folder = path
        self.active = RAW not in variables() and current.session is None
        if not self.active:
            _say(f"this process is recorded already, so {path} is not created")
            return
        machine = known_machine()
        self._plan = plan = met(plan, machine)
        raw = NewFolder(path, replace).keep()
        plan.write(raw)
        write_launch(raw, [], os.environ, machine, name=path.stem)
        self._sampler = _sampler(raw)
        allow(self._sampler.pid)
        probe.start(str(raw.absolute()), asdict(plan))

    def end(self, error: type[BaseException] | None = None) -> Store | None:
        """Stop recording and write the sounding; None if the records stay raw, which is reported.

        `error` is the exception that ended the recorded block, if any.
        """
        if not self.active:
            return None
        probe.stop()
        self._stop_sampler()
        Ending(None, None, _how(error), time.time_ns()).write(self.folder / "raw", self._plan.abstained)
        return finish(self.folder, say=_say)

    def _stop_sampler(self) -> None:
        try:
            self._sampler.communicate(timeout=5)  # closing its standard input ends the process
        except subprocess.TimeoutExpired:
            self._sampler.kill()
            self._sampler.wait()


def _sampler(raw: Path) -> subprocess.Popen[bytes]:
    """Start telemetry in a separate process, because a thread here would take the GIL from the program."""
    path = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-c", _SAMPLE, str(raw), str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        start_new_session=True,  # so that a Ctrl-C in the terminal does not reach it
    )


def _how(error: type[BaseException] | None) -> str:
    if error is None:
        return "finished"
    return "interrupted" if issubclass(error, KeyboardInterrupt) else "crashed"


def _say(text: str) -> None:
    if sys.stderr is not None:
        print(f"fathom: {visible_line(text)}", file=sys.stderr, flush=True)
