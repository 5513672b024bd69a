"""Record all programs in all their forms.

    fathom machine measure                                                    # on the target, once
    python -m benchmarks.unrelated.record record OUT --minutes 8 --tar a.tar  # there, until nothing is left
    python -m benchmarks.unrelated.record finish a.tar                        # here: to recordings/

As in faults/record.py; `--gpus 0,1` records each program on its own GPU. They take no turns.
"""

from __future__ import annotations

from benchmarks.unrelated.planted import KEPT, planted
from faults.record import run

if __name__ == "__main__":
    run(planted, KEPT, __doc__, steps=120, windows=6)
