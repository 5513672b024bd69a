"""Run a program eagerly first, then with torch.compile and without it in turns.

    python benchmarks/accuracy/in_turns.py TIMES.json train_gpt --steps 100000

A host's speed differs between processes by more than compiling gains, so both forms run in one process. The
program is unchanged: what it passes to `torch.compile` runs as it is for EAGER calls, in which a recording
of the eager form takes place, and is compiled after them. Each stretch begins and ends with an idle device.
TIMES.json gets the mean step of every stretch in ms, as pairs (eager, compiled). With TRACES=1, a few steps
of each form are then traced, to eager.json.gz and compiled.json.gz beside it; in some programs torch 2.11
then waits for minutes for its compiler's processes. Then the program ends.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cost"))
from launcher import as_started

EAGER = int(os.environ.get("EAGER", "700"))  # calls: enough for ten bursts of the timeline and steps between
WARM_UP = 12  # calls of the compiled form before the first turn
TURNS, LENGTH, SETTLING = 12, 40, 4  # pairs of stretches; steps in each that count, and before these
TRACED = 4  # steps of each form


class EndedError(BaseException):
    """All turns were timed."""


class Turns:
    """The model as torch.compile's caller sees it: eager, and compiled where it is that form's turn."""

    def __init__(self, model: Any, compiled: Callable[[], Any], times: Path) -> None:
        self._model, self._compiled, self._times = model, compiled, times
        self._forms = self._course()

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        return next(self._forms)(*inputs, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def _course(self) -> Iterator[Any]:
        """Yield the form that serves each call."""
        for _ in range(EAGER):
            yield self._model
        compiled = self._compiled()
        for _ in range(WARM_UP):
            yield compiled
        pairs: list[list[float]] = []
        for turn in range(TURNS):
            both = [0.0, 0.0]
            for place in (turn % 2, 1 - turn % 2):  # each form is first in half of the turns
                form = (self._model, compiled)[place]
                for _ in range(SETTLING):
                    yield form
                begun = _idle()
                for _ in range(LENGTH):
                    yield form
                both[place] = 1e3 * (_idle() - begun) / LENGTH
            pairs.append(both)
        self._times.write_text(json.dumps(pairs))
        with suppress(RuntimeError):  # another profiler runs
            for name, form in (("eager", self._model), ("compiled", compiled)):
                yield from self._traced(name, form)
        raise EndedError

    def _traced(self, name: str, form: Any) -> Iterator[Any]:
        """Yield the form for a few steps, and write the trace of the device's work in them."""
        import torch
        from torch.profiler import ProfilerActivity, profile

        if os.environ.get("TRACES") != "1" or not torch.cuda.is_available():
            return
        for _ in range(SETTLING):
            yield form
        with profile(activities=[ProfilerActivity.CUDA]) as trace:
            for _ in range(TRACED):
                yield form
            _idle()
        trace.export_chrome_trace(str(self._times.with_name(f"{name}.json.gz")))


def _idle() -> float:
    """Wait for the device, and return the time in seconds."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def main() -> None:
    times, program, *arguments = sys.argv[1:]
    import torch

    compiler = torch.compile

    def in_turns(model: Any, *rest: Any, **options: Any) -> Turns:
        return Turns(model, lambda: compiler(model, *rest, **options), Path(times).resolve())

    torch.compile = in_turns
    try:
        runpy.run_path(as_started(program, [*arguments, "--compile"]), run_name="__main__")
    except EndedError:
        return
    sys.exit(f"{program} ended too early; give it more --steps")


if __name__ == "__main__":
    main()
