"""The times and contents of requests. They are fixed before the run, so lateness is known."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from fathom.errors import BadInputError, file_error
from fathom.regular import decode, read_regular
from fathom.timing import next_arrival
from fathom.units import MS_PER_S

_TEXT = (
    "the a of to in and for that with as on is by this from are at be an or which all new more they time "
    "work page list state order value model data point line part case form number system question"
)
_WORDS = _TEXT.split()


@dataclass(frozen=True)
class Workload:
    """The requests to send. `words` are of each prompt, of which the first `shared` are the same in all."""

    rate: float = 1.0
    requests: int = 100
    pattern: str = "poisson"
    words: int = 200
    shared: int = 0
    tokens: int = 64
    turns: int = 1
    seed: int = 0
    trace: Path | None = None

    def __post_init__(self) -> None:
        if (self.pattern == "replay") != (self.trace is not None):
            raise BadInputError(
                "A trace is replayed by --pattern replay --trace FILE; give both, or neither."
            )

    @cached_property
    def replayed(self) -> list[dict[str, Any]]:
        """Return the requests of the trace, which is read once. Raises BadInputError if it cannot be read."""
        assert self.trace is not None
        return _read(self.trace)


def offsets(load: Workload) -> list[float]:
    """Return when each conversation begins, in seconds from the start. Raises BadInputError for a trace."""
    if load.pattern == "replay":
        return [float(row["timestamp"]) / MS_PER_S for row in load.replayed]
    draw, rate = random.Random(load.seed), load.rate / load.turns
    gaps = (next_arrival(load.pattern, rate, draw) for _ in range(load.requests // load.turns - 1))
    return list(accumulate(gaps, initial=0.0))


def rows(load: Workload) -> list[dict[str, Any]]:
    """Return the requests as aiperf's `mooncake_trace` reads them."""
    if load.pattern == "replay":
        return load.replayed
    draw = np.random.default_rng(load.seed + 1)
    prefix = " ".join(draw.choice(_WORDS, load.shared))
    made = []
    for number, at in enumerate(offsets(load)):
        for turn in range(load.turns):
            own = " ".join(draw.choice(_WORDS, max(load.words - load.shared, 1)))
            text = " ".join(filter(None, (prefix if turn == 0 else "", f"{number}.{turn}", own)))
            when = {"timestamp": at * MS_PER_S} if turn == 0 else {"delay": 0}
            session = {"session_id": f"s{number}"} if load.turns > 1 else {}
            made.append({**session, "text_input": text, "output_length": load.tokens, **when})
    return made


def shared_share(load: Workload) -> float | None:
    """Return the share of the prompts' words that an earlier prompt began with; None for traces and turns."""
    if load.pattern == "replay" or load.turns > 1:
        return None
    return min(load.shared / load.words, 1.0) * (load.requests - 1) / load.requests


def _read(trace: Path) -> list[dict[str, Any]]:
    """Read a trace: lines of JSON with `timestamp` (ms), `text_input` or `input_length`, `output_length`."""
    try:
        lines = read_regular(trace).decode().splitlines()
        read = [decode(line.encode()) for line in lines if line.strip()]
    except OSError as error:
        raise BadInputError(file_error(trace, error)) from None
    except ValueError:
        raise BadInputError(f"{trace} is not a trace; give JSON lines with a timestamp in ms.") from None
    if not read or not all(isinstance(row, dict) and _is_time(row.get("timestamp")) for row in read):
        raise BadInputError(f"{trace} has lines without a timestamp in ms; every request needs one.")
    return sorted(read, key=lambda row: float(row["timestamp"]))


def _is_time(value: Any) -> bool:
    """Return whether a timestamp is a finite number that is not negative."""
    return isinstance(value, (int, float)) and 0 <= value < math.inf
