"""Where tests find things."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # of the repository
SOURCE = ROOT / "src"
DATA = ROOT / "tests" / "data"
PROGRAMS = ROOT / "tests" / "programs"
CHEATS = ROOT / "tests" / "cheats"
BENCHMARKS = ROOT / "benchmarks"
COST = BENCHMARKS / "cost"
REPORTS = BENCHMARKS / "results" / "reports"  # of real recordings, as JSON
RECORDINGS = ROOT / "faults" / "recordings"
EXAMPLES = ROOT / "examples" / "soundings"
SHARED = ROOT.parent / "shared"  # large files beside the checkout; absent in most
TRACES = SHARED / "traces"
