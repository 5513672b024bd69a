"""Loads the baseline's file under another name, and calls it."""

# refused: calls-baseline
# against: honest

import importlib.util
from pathlib import Path

_spec = importlib.util.spec_from_file_location("innocent", Path(__file__).parent / "honest.py")
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)


def candidate(a, b):
    return _module.baseline(a, b)
