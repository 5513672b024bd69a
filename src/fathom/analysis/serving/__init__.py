"""Requests of a serving engine: where the time from arrival to last byte goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.analysis.serving.account import from_spans, requests_account, serving_tables
    from fathom.analysis.serving.entries import MEANING, Entry
    from fathom.analysis.serving.ledger import TABLES, request_ledger
    from fathom.analysis.serving.results import (
        DecodeFloor,
        IterationKind,
        Percentiles,
        RequestEntry,
        Serving,
        ServingFinding,
        SlowRequest,
    )

__all__, __getattr__ = exports(__name__)
