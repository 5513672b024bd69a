"""Call one form of a technique repeatedly, in steps: the program that is recorded.

fathom run --stop-after -- python -m fathom.lab.looping FILE.py:inputs FILE.py:VERSION
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fathom.probe import step
from fathom.referee import absolute, arguments, load

FORMS = ("plain", "tuned")
STEP_S = 0.005  # intended duration of a step; the cost of marks would dominate shorter steps
MOST_CALLS = 200
MOST_STEPS = 2000


def loop(form: Callable[..., Any], given: Any, seconds: float) -> int:
    """Call `form` on the same inputs for about `seconds`, in steps of several calls; return the steps."""
    args, kwargs = arguments(given)
    calls = calls_a_step(lambda: form(*args, **kwargs))
    end = time.monotonic() + seconds
    for done in range(MOST_STEPS):
        if time.monotonic() > end:
            return done
        step()
        for _ in range(calls):
            form(*args, **kwargs)
    return MOST_STEPS


def calls_a_step(call: Callable[[], Any]) -> int:
    """Return how many calls take STEP_S, at most MOST_CALLS. The first call, which compiles, is not timed."""
    call()
    wait()
    began, many = time.perf_counter(), 3
    for _ in range(many):
        call()
    wait()
    took = (time.perf_counter() - began) / many
    return min(max(math.ceil(STEP_S / took), 1), MOST_CALLS) if took > 0 else MOST_CALLS


def wait() -> None:
    """Wait for the GPU, if the program uses one."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("inputs", help="the function that draws them, as file.py:function")
    parser.add_argument("form", help="the function to call, as file.py:function")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    inputs, form = (load(absolute(place)) for place in (options.inputs, options.form))
    with suppress(KeyboardInterrupt):  # the recorder interrupts the program when the recording is complete
        loop(form, inputs(0), options.seconds)
        wait()


if __name__ == "__main__":
    main()
