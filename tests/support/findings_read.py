"""Signals of a sounding, as rules are given them."""

from __future__ import annotations

from pathlib import Path

import fathom
from fathom.analysis import account_of
from fathom.diagnosis.ranks import step_of
from fathom.diagnosis.signals import Recorded, Signals


def recorded(path: Path) -> Recorded:
    store = fathom.open(path).store
    rank = account_of(store, store.manifest.ranks[0].rank, store.machine)
    return Recorded(store, store.machine, rank, step_of([rank]))


def read(path: Path) -> Signals:
    return Signals(None, recorded(path))
