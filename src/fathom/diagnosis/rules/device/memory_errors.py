"""Errors of the device's memory, which cost no time until they cost the run."""

from __future__ import annotations

from fathom.diagnosis.rules.rule import Candidate, Evidence, Found, rule
from fathom.diagnosis.signals import Signals

MANY = 100  # corrected errors: a few come by radiation alone


@rule("device-ecc")
def memory_errors(signals: Signals) -> Found:
    """Errors that were not corrected, rows that wait to be replaced, or very many corrected ones."""
    counts = signals["device.gpu"].get("ecc_errors") or {}
    lost, pending = counts.get("uncorrected") or 0, bool(counts.get("rows_pending"))
    corrected = counts.get("corrected") or 0
    if not (lost or pending or corrected > MANY):
        return
    evidence = [
        Evidence("errors were not corrected", float(lost), "errors"),
        Evidence("errors were corrected", float(corrected), "errors"),
    ]
    yield Candidate(
        kind="device-ecc",
        claims=[],
        evidence=evidence,
        costless=True,
        check="nvidia-smi -q -d ECC,ROW_REMAPPER",
    )
