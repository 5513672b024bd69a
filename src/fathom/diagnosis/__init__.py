"""Examine a sounding: findings, verdict and account from its analyses."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fathom.diagnosis.examine import examine

if TYPE_CHECKING:
    from fathom.diagnosis.naming import (
        FormFindings,
        PairFinding,
        findings_in,
        form_findings,
        pair_findings,
    )

__all__ = ["FormFindings", "PairFinding", "examine", "findings_in", "form_findings", "pair_findings"]


def __getattr__(name: str) -> Any:
    """Names of pairs of recordings, which a report does not compare, are loaded on first use."""
    if name in __all__:
        return getattr(import_module("fathom.diagnosis.naming"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
