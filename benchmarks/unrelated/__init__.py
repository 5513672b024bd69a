"""Programs with planted faults that no rule was built on: how right the diagnosis is about them.

Their labels stand in labels.yaml, their recordings in benchmarks/unrelated/recordings.
"""

from __future__ import annotations


def bench() -> str:
    """Examine every recording, write the figures, return them as a table."""
    from benchmarks.unrelated.score import bench as scored

    return scored()
