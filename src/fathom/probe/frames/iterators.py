"""The generators that are alive between two steps: they may feed the loop. Others live within one step."""

from __future__ import annotations

import sys
from types import GeneratorType
from typing import Any

from fathom.atomic import atomic_write
from fathom.pristine import gc, json, open, os, time

ITERATORS = "iterators-{pid}.json"
MOST = 500  # functions to write
LONG_S = 0.05  # a longer search is not repeated: the program has millions of objects


class Iterators:
    """Writes the functions of all generators that are alive, and torch's number of compute threads."""

    def __init__(self, raw: str) -> None:
        self._path = os.path.join(raw, ITERATORS.format(pid=os.getpid()))
        self._known: set[tuple[str, str]] = set()
        self._over = False

    def note(self) -> None:
        """Search the objects of this process, 0.1 µs for each, between steps that are not recorded."""
        if self._over:
            return
        began = time.perf_counter()
        self._known |= alive()
        self._over = time.perf_counter() - began > LONG_S or len(self._known) > MOST
        record = {"generators": sorted(self._known)[:MOST], "threads": _threads()}
        with atomic_write(self._path) as part, open(part, "w", encoding="utf-8") as file:
            json.dump(record, file)


def alive() -> set[tuple[str, str]]:
    """Return function and file of each generator that has begun or will begin, and has not ended."""
    generators = [value for value in gc.get_objects() if type(value) is GeneratorType]
    codes = {value.gi_code for value in generators if value.gi_frame is not None}
    return {(getattr(code, "co_qualname", code.co_name), code.co_filename) for code in codes}


def _threads() -> int | None:
    torch: Any = sys.modules.get("torch")
    try:
        return int(torch.get_num_threads())
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return None
