"""One form of a technique, over and over, in steps: the program that is recorded.

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
STEP_S = 0.005  # of calls in a step, about: shorter ones would hold more of marking than of the form
MOST_CALLS = 200
MOST_STEPS = 2000


def loop(form: Callable[..., Any], given: Any, seconds: float) -> int:
    """Call `form` on the same inputs in steps of several calls for about so long; how many steps."""
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
    """How many take as long as a step should; the first, which compiles, is not timed."""
    call()
    wait()
    began, many = time.perf_counter(), 3
    for _ in range(many):
        call()
    wait()
    took = (time.perf_counter() - began) / many
    return min(max(math.ceil(STEP_S / took), 1), MOST_CALLS) if took > 0 else MOST_CALLS


def wait() -> None:
    """Until a GPU that the program uses is done."""
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
    with suppress(KeyboardInterrupt):  # how the recorder ends a program of which all is recorded
        loop(form, inputs(0), options.seconds)
        wait()


if __name__ == "__main__":
    main()
