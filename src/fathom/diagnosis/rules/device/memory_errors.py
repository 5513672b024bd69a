"""Errors of the device's memory, which cost no time until they end the run."""

from __future__ import annotations

from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Signals

MANY = 100  # corrected errors: radiation alone causes a few


@rule("device-ecc")
def memory_errors(signals: Signals) -> Candidates:
    """Report uncorrected errors, rows pending a remap, or very many corrected errors."""
    counts = signals["device.gpu"].get("ecc_errors") or {}
    lost, pending = counts.get("uncorrected") or 0, bool(counts.get("rows_pending"))
    corrected = counts.get("corrected") or 0
    if not (lost or pending or corrected > MANY):
        return
    evidence = [
        Evidence("uncorrected errors", float(lost), "errors"),
        Evidence("corrected errors", float(corrected), "errors"),
    ]
    yield Candidate(
        kind="device-ecc",
        claims=[],
        evidence=evidence,
        costless=True,
        check="nvidia-smi -q -d ECC,ROW_REMAPPER",
    )
