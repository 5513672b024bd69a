"""PCIe and NVLink links below their maximum rate."""

from __future__ import annotations

from typing import Any

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rows, rule
from fathom.diagnosis.signals import Signals


def _crosses_link(claim: Claim) -> bool:
    return claim.detail.startswith(("HtoD", "DtoH"))


def _link_of(gpu: dict[str, Any]) -> str:
    lanes = f"{gpu['pcie_width']} of {gpu['pcie_width_max']} lanes"
    return f"PCIe rate, with {lanes}, generation {gpu['pcie_generation']} of {gpu['pcie_generation_max']}"


@rule("device-link-degraded")
def links(signals: Signals) -> Candidates:
    """Compare the PCIe link while the device is busy: an idle link lowers its generation on purpose."""
    gpu = signals["device.gpu"]
    share = signals["device.link_share"]
    off = (gpu.get("nvlink") or {}).get("off") or 0
    if off:
        yield Candidate(
            kind="device-link-degraded",
            claims=[],
            evidence=[Evidence("inactive NVLinks", float(off), "links")],
            costless=True,
            check="nvidia-smi nvlink -s",
        )
    if share < 1:
        yield Candidate(
            kind="device-link-degraded",
            claims=[
                Claim(c.entry, c.detail, (1 - share) * c.ms)
                for c in rows(signals, Entry.COPY)
                if _crosses_link(c)
            ],
            evidence=[Evidence(_link_of(gpu), 100 * share, "%")],
            changes=(f"copy:HtoD={share:.6f}", f"copy:DtoH={share:.6f}"),
            doubt=0.2,
            check='nvidia-smi -q | grep -A8 "GPU Link Info"',
        )
