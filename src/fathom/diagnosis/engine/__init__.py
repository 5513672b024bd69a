"""Runs the rules over the signals of a sounding."""

from fathom.diagnosis.engine.findings import findings, plain
from fathom.diagnosis.engine.leads import leads

__all__ = ["findings", "leads", "plain"]
