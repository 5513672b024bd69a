"""Planted kernels: 14 wrong or racy ones have to be refused, 12 right ones not.

python -m benchmarks.tuning.planted [--write]
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from fathom.tuner import Ranked, Ranking, rank_kernels

KERNELS = Path(__file__).parent / "kernels"
RESULT = Path(__file__).parents[1] / "results" / "tuning_kernels.json"


def bench() -> str:
    """Rank the planted kernels, and return how many were judged rightly."""
    return summary(ranking())["text"]


def ranking() -> Ranking:
    return rank_kernels(f"{KERNELS / 'reference.py'}:norm", KERNELS, budget_s=3.0)


def summary(ranks: Ranking) -> dict:
    """Return the counts, and each candidate's verdict with the codes of its reasons."""
    refused = {row.candidate: row.verdict == "refused" for row in ranks.rows}
    wrong = [name for name in refused if not name.startswith("right_")]
    right = [name for name in refused if name.startswith("right_")]
    caught, accepted = sum(refused[name] for name in wrong), sum(not refused[name] for name in right)
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return {
        "text": f"{caught} of {len(wrong)} wrong or racy refused, {accepted} of {len(right)} right accepted",
        "load_per_core": round(load, 1),
        "isolated": ranks.isolated,
        "verdicts": {
            row.candidate: [row.verdict, row.ratio, [r.code for r in row.reasons]] for row in ranks.rows
        },
    }


def _codes(row: Ranked) -> list[str]:
    return [reason.code for reason in row.reasons]


if __name__ == "__main__":
    seen = summary(ranking())
    if "--write" in sys.argv:
        RESULT.write_text(json.dumps(seen, indent=1) + "\n")
    print(json.dumps(seen, indent=1))
