"""Findings on the requests of a serving engine: what lengthens them, and what a remedy would save."""

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.diagnosis.serving.findings import join, serving_abstained, serving_findings, set_costs
    from fathom.diagnosis.serving.server import diagnose_load

__all__, __getattr__ = exports(__name__)
