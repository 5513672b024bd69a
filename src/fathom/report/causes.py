"""The meaning of ledger entries, in at most 25 characters, which fit 80 columns."""

from __future__ import annotations

MEANING = {
    "idle: input": "no batch was ready",
    "idle: synchronisation": "the host was blocked",
    "idle: allocator": "memory was allocated",
    "idle: gc": "garbage was collected",
    "idle: compilation": "code was compiled",
    "idle: checkpoint": "state was saved",
    "idle: dispatching": "launches were prepared",
    "idle: python": "Python ran between ops",
    "idle: blocked": "a system call blocked",
    "idle: waiting for peers": "other ranks were late",
    "idle: profiling overhead": "Fathom's own hooks ran",
    "idle: launch latency": "launched, not yet running",
    "idle: device gap": "work waited for work",
    "idle: no work": "nothing was requested",
    "idle: unexplained": "no record explains it",
    "unattributed": "no record explains it",
    "waiting for peers": "other ranks were late",
}
