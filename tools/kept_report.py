"""Print a report of benchmarks/results/reports again, in the words of today.

python tools/kept_report.py ddp-nccl --rank 1
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from fathom.analysis.results import Examination
from fathom.report import print_report

REPORTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "reports"


def main() -> None:
    """Print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--rank", type=int)
    options = parser.parse_args()
    kept = (REPORTS / f"{options.name}.json").read_bytes()
    print_report(msgspec.json.decode(kept, type=Examination, strict=False), rank=options.rank)


if __name__ == "__main__":
    main()
