"""One sampled process: its thread and the output file of its samples."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from fathom.probe.frames import DENSE, LAYOUT, SPARSE, FrameLayout, ProcessMemory
from fathom.recorder.stacks.blocking import Activity
from fathom.recorder.stacks.codes import Chain, Codes, Frame, TornError, Walker

BATCH, SPARSE_BATCH = 4096, 64  # samples per write; those of a burst are written when it has ended
AGAIN = 2  # read the stack twice in one of this many samples
MOST_KNOWN = 50_000  # chains to remember

# Whether the interpreter moved on between two reads, ns between them, and the share of its runnable time
# since the previous check in which the thread had a core.
Moves = tuple[()] | tuple[bool, int, float | None]


class SampledProcess:
    """Samples one thread of the process `pid` into `raw/stacks-PID.jsonl`."""

    def __init__(self, raw: Path, pid: int) -> None:
        location = json.loads((raw / LAYOUT.format(pid=pid)).read_text())
        layout, memory = FrameLayout(**location["layout"]), ProcessMemory(pid)
        self.pid = pid
        self.on, self.rate = False, DENSE
        self.sparse = 0  # samples of clean steps so far
        self._path = raw / f"stacks-{pid}.jsonl"
        self._walker, self._codes = Walker(memory, layout), Codes(memory, layout)
        self._activity: Activity | None = None
        self._state = self._thread = self._torn = self._start_ns = self.samples = 0
        self._chains: dict[Chain, int | None] = {}  # stack number by chain; None for a torn chain
        self._places: dict[tuple[int, int], int] = {}  # frame number by (code, instruction)
        self._frames: dict[Frame, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._rows: list[tuple[int, bool | None, str | None, Chain, Moves]] = []
        self._new: dict[str, list[Any]] = {"frames": [], "stacks": []}

    def begin(self, thread: int, state: int, rate: str | None = DENSE) -> None:
        """Begin a stretch of DENSE or SPARSE samples of `thread`, whose state is at address `state`."""
        self.end()
        self._forget()
        self.on, self._thread, self._state, self.rate = True, thread, state, rate or DENSE
        self._torn = self.samples = 0
        self._start_ns = time.time_ns()
        self._activity = Activity(self.pid, thread)

    def end(self) -> None:
        """End the stretch and write pending samples."""
        if not self.on:
            return
        self.on = False
        if self._activity is not None:
            self._activity.close()
        self._write()
        times = {"start_ns": self._start_ns, "end_ns": time.time_ns()}
        counts = {"rate": self.rate, "samples": self.samples, "dropped": self._torn}
        self._append([{"t": "stretch", **times, **counts}])

    def sample(self) -> None:
        """Take one sample. Drop it if it was torn; end the stretch if the process has ended."""
        assert self._activity is not None
        now = time.time_ns()
        running, call = self._activity.now()
        began = time.perf_counter_ns()
        chain = self._walker.walk(self._state)
        self.samples += 1
        if chain is None:
            self._torn += 1
            if self._walker.gone(self._state):
                self.end()
            return
        moves = self._moves(chain, began) if running and self.samples % AGAIN == 0 else ()
        self._rows.append((now, running, call, chain, moves))
        if self.rate == SPARSE:
            self.sparse += 1
            self._stack(chain)  # resolve now, because the process may end within the stretch
            if len(self._rows) >= SPARSE_BATCH:
                self._write()
                self._forget()
        elif len(self._rows) >= BATCH:
            self._write()

    def _forget(self) -> None:
        """Forget resolved addresses, because the program reuses them."""
        self._chains.clear()
        self._places.clear()

    def _moves(self, chain: Chain, began: int) -> Moves:
        """Read the stack again, to see whether the interpreter moved on or is inside a native call.

        The frame's values are compared too, because a loop may be back at the same instruction. Returns () if
        the sampler itself took the thread's core, because then neither can be seen.
        """
        frame, again = self._walker.innermost, time.perf_counter_ns()
        after = self._walker.walk(self._state)
        moved = after != chain or frame != self._walker.innermost
        share = self._activity.on_processor() if self._activity else None
        displaced = self._activity is not None and self._activity.displaced()
        return () if after is None or displaced else (moved, again - began, share)

    def _stack(self, chain: Chain) -> int | None:
        """Return the number of a chain's stack; None if it was torn."""
        if chain not in self._chains:
            if len(self._chains) >= MOST_KNOWN:
                self._chains.clear()
            self._chains[chain] = self._resolved(chain)
        return self._chains[chain]

    def _resolved(self, chain: Chain) -> int | None:
        try:
            frames = [self._frame(chain[i], chain[i + 1]) for i in range(0, len(chain), 2)]
        except (TornError, OSError, UnicodeDecodeError):
            return None
        stack = tuple(frame for frame in reversed(frames) if frame >= 0)
        number = self._stacks.get(stack)
        if number is None:
            number = self._stacks[stack] = len(self._stacks)
            self._new["stacks"].append(stack)
        return number

    def _frame(self, code: int, instruction: int) -> int:
        """Return the number of a frame; -1 for the interpreter's own code."""
        place = code, instruction
        if place not in self._places:
            frame = self._codes.frame(code, instruction)
            if frame is not None and frame not in self._frames:
                self._frames[frame] = len(self._frames)
                self._new["frames"].append(frame)
            self._places[place] = -1 if frame is None else self._frames[frame]
        return self._places[place]

    def _write(self) -> None:
        """Resolve and write pending samples. Rare within a stretch, because it takes milliseconds."""
        resolved = [
            (now, running, call, self._stack(chain), *moves)
            for now, running, call, chain, moves in self._rows
        ]
        rows = [row for row in resolved if row[3] is not None]
        self._torn += len(resolved) - len(rows)
        new: list[dict[str, Any]] = [{"t": name, "rows": rows} for name, rows in self._new.items() if rows]
        if rows:
            new.append({"t": "samples", "thread": self._thread, "rows": rows})
        self._rows, self._new = [], {"frames": [], "stacks": []}
        self._append(new)

    def _append(self, records: list[dict[str, Any]]) -> None:
        if records:
            with self._path.open("a") as file:
                file.write("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records))
