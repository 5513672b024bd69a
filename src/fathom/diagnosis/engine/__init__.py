"""Runs the rules over the signals of a sounding."""

from fathom.diagnosis.engine.findings import findings, plain

__all__ = ["findings", "plain"]
