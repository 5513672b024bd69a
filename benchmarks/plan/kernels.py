"""Shares of ceilings that kinds of kernels reach, from the recordings of the faults on an H200.

python -m benchmarks.plan.kernels          # writes src/fathom/planner/training/kernels.yaml
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from pathlib import Path

from fathom.analysis.entries import IDLE, Entry
from fathom.analysis.results import Device, LedgerRow
from fathom.planner.training import waves
from fathom.units import US_PER_MS
from faults.examined import KEPT, examinations

TARGET = Path(__file__).parents[2] / "src" / "fathom" / "planner" / "training" / "kernels.yaml"
ARCHIVES = ("kernels.2", "kernels.3", "tuned.2", "numbers.2", "host.2", "input.2")
SMS = 132  # of an H200
SHORT_MS, FEWEST = 0.006, 2  # shorter kernels show their launch, not their rate
HEADER = "# Written by `python -m benchmarks.plan.kernels`: share of the ceiling (median, quartiles), count."


def kind_of(name: str) -> str:
    """Return the beginning of a kernel's name that its kind has in common, up to tile sizes and hashes."""
    plain = re.split(r" \d+x|·", name)[0].strip()
    operator = re.match(r"[\w:]+<[\w:]+", plain)
    if operator:
        return operator[0]
    return re.sub(r"_(wgmma|\d+x\d+).*", "", plain)


def devices() -> list[Device]:
    """Return the first device of every recording with measured ceilings."""
    return [
        examination.devices[0]
        for archive in ARCHIVES
        for _, examination in examinations(KEPT / f"{archive}.tar.xz")
        if examination.devices and examination.devices[0].ceilings == "measured"
    ]


def rows(recorded: list[Device]) -> list[LedgerRow]:
    """Return the compute rows whose work is known."""
    return [
        row
        for device in recorded
        for row in device.ledger
        if row.entry == "compute" and row.at_ceiling_ms and row.count
    ]


def gap_us(recorded: list[Device]) -> float:
    """Return the device's gap after a kernel, where the host keeps ahead in most of the idle time."""
    gaps = []
    for device in recorded:
        idle = sum(row.ms for row in device.ledger if row.entry.startswith(IDLE))
        gap = sum(row.ms for row in device.ledger if row.entry == Entry.DEVICE_GAP)
        if gap > 0.8 * idle:
            gaps.append(US_PER_MS * gap / sum(row.count or 0.0 for row in device.ledger))
    return statistics.median(gaps)


def shares(seen: list[LedgerRow]) -> dict[str, list[float]]:
    """Return the shares of every kind, one for each row."""
    result: dict[str, list[float]] = defaultdict(list)
    for row in seen:
        if row.ms / row.count > SHORT_MS:
            result[kind_of(row.detail)].append(min(1.0, row.at_ceiling_ms / row.ms))
    return result


def wave_us(seen: list[LedgerRow]) -> float:
    """Return the time of a wave of blocks in kernels of many waves that do not reach the memory's rate."""
    return statistics.median(
        US_PER_MS * row.ms / row.count / waves(row.detail, SMS)
        for row in seen
        if "elementwise" in row.detail and row.at_ceiling_ms / row.ms < 0.6 and waves(row.detail, SMS) > 6
    )


def product_us(seen: list[LedgerRow]) -> float:
    """Return the time by which short matrix products exceed that at the ceiling."""
    return statistics.median(
        US_PER_MS * (row.ms - row.at_ceiling_ms) / row.count
        for row in seen
        if row.detail.startswith("nvjet") and 6 < US_PER_MS * row.at_ceiling_ms / row.count < 25
    )


def table(recorded: list[Device]) -> str:
    """Return the data file."""
    seen = rows(recorded)
    by_kind = shares(seen)
    every = [share for values in by_kind.values() for share in values]
    lines = [HEADER, f"wave_us: {wave_us(seen):.2f}", f"product_us: {product_us(seen):.2f}"]
    lines += [f"gap_us: {gap_us(recorded):.2f}"]
    lines += [f"other: {statistics.median(every):.3f}", "kinds:"]
    for kind, values in sorted(by_kind.items()):
        if len(values) >= FEWEST and len(kind) < 60:
            low, middle, high = statistics.quantiles(values, n=4)
            lines.append(f'  "{kind}": [{middle:.3f}, {low:.3f}, {high:.3f}, {len(values)}]')
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(table(devices()))
    print(TARGET.read_text())
