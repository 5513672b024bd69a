"""Links that run below what they can."""

from __future__ import annotations

from typing import Any

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.rule import Candidate, Claim, Evidence, Found, rows, rule
from fathom.diagnosis.signals import Signals


def _crosses(claim: Claim) -> bool:
    return claim.detail.startswith(("HtoD", "DtoH"))


def _says(gpu: dict[str, Any]) -> str:
    lanes = f"{gpu['pcie_width']} of {gpu['pcie_width_max']} lanes"
    return f"{lanes}, generation {gpu['pcie_generation']} of {gpu['pcie_generation_max']}: of PCIe's rate"


@rule("device-link-degraded")
def links(signals: Signals) -> Found:
    """PCIe while the device is at work; its generation falls on purpose while it idles."""
    gpu = signals["device.gpu"]
    share = signals["device.link_share"]
    off = (gpu.get("nvlink") or {}).get("off") or 0
    if off:
        yield Candidate(
            kind="device-link-degraded",
            claims=[],
            evidence=[Evidence("NVLinks are off", float(off), "links")],
            costless=True,
            check="nvidia-smi nvlink -s",
        )
    if share < 1:
        yield Candidate(
            kind="device-link-degraded",
            claims=[
                Claim(c.entry, c.detail, (1 - share) * c.ms) for c in rows(signals, Entry.COPY) if _crosses(c)
            ],
            evidence=[Evidence(_says(gpu), 100 * share, "%")],
            changes=(f"copy:HtoD={share:.6f}", f"copy:DtoH={share:.6f}"),
            doubt=0.2,
            check='nvidia-smi -q | grep -A8 "GPU Link Info"',
        )
