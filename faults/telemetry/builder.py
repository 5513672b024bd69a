"""Soundings of devices that are unwell, made by hand: what nobody may cause on a machine that others use.

A file beside this one builds one kind: `FAULT`, its labels, and `build(form, severity)`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

MS = 1_000_000
START = 1_700_000_000_000_000_000
PERIOD = 100 * MS  # between two samples of the sensors
STEP_MS, COPY_BYTES, COPY_GB_S = 20.0, 256 << 20, 55.0  # of the step when all is well
CLEAN, TIMELINE = 120, 10  # steps of each phase
GPU = {
    "index": 0,
    "name": "NVIDIA H200",
    "uuid": "GPU-0",
    "compute_capability": "9.0",
    "memory_bytes": 150_754_820_096,
    "multiprocessors": 132,
    "l2_bytes": 62_914_560,
    "sm_clock_max_mhz": 1980,
    "memory_clock_max_mhz": 3201,
    "power_limit_w": 700.0,
    "power_limit_default_w": 700.0,
    "power_limit_min_w": 200.0,
    "power_limit_max_w": 700.0,
    "pcie_generation": 5,
    "pcie_width": 16,
    "pcie_generation_max": 5,
    "pcie_width_max": 16,
    "ecc": True,
    "nvlink": {"links": 18, "off": 0, "version": "4.0", "to_switch": 18, "peers": {}},
}
WELL = {
    "power_w": 520.0,
    "sm_clock_mhz": 1980,
    "memory_clock_mhz": 3201,
    "temperature_c": 58,
    "busy_percent": 99.0,
    "memory_bytes": 40 << 30,
    "throttle": 0,
}


@dataclass
class Synthetic:
    """A device for the length of a recording: what its sensors say, and how fast it computes and copies.

    `sensors` replace values of WELL, each a number or a function of time (0 to 1); `gpu` replaces entries of
    the inventory; `clock` is the clock that kernels run at, as a share of its maximum; `copy_gb_s` is the
    link's rate. `overlapped`: the next batch is copied while this one is worked on.
    """

    sensors: dict[str, Any] = field(default_factory=dict)
    gpu: dict[str, Any] = field(default_factory=dict)
    clock: float = 1.0
    copy_gb_s: float = COPY_GB_S
    overlapped: bool = True

    @property
    def copy_ms(self) -> float:
        """How long the step's copy takes."""
        return COPY_BYTES / self.copy_gb_s / 1e6

    @property
    def step_ms(self) -> float:
        """Computation, which follows the clock, with the copy beside or before it."""
        return STEP_MS / self.clock + (0.0 if self.overlapped else self.copy_ms)

    def telemetry(self, seed: int = 0) -> list[dict[str, Any]]:
        """Rows of the telemetry table."""
        chance, length = random.Random(seed), self.step_ms * (CLEAN + TIMELINE) * MS
        count = int(length / PERIOD) + 1
        rows = [self._row(number, number / max(1, count - 1), chance) for number in range(count)]
        energy = accumulate(row["power_w"] * PERIOD / 1e9 for row in rows)
        return [{**row, "energy_j": 1e6 + joules} for row, joules in zip(rows, energy, strict=True)]

    def _row(self, number: int, when: float, chance: random.Random) -> dict[str, Any]:
        now = {
            name: value(when) if callable(value) else value for name, value in (WELL | self.sensors).items()
        }
        now["power_w"] = float(now["power_w"]) + chance.uniform(-4, 4)
        now["temperature_c"] = int(now["temperature_c"]) + chance.randint(0, 1)
        return {"device": 0, "time_ns": START + number * PERIOD, **now}

    def machine(self) -> dict[str, Any]:
        """The contents of machine.json."""
        return {"host": {"hostname": "here"}, "gpus": [GPU | self.gpu], "versions": {"driver": "580.95"}}

    def steps(self) -> list[dict[str, Any]]:
        """Rows of the steps table: a clean phase, then a timeline."""
        length = round(self.step_ms * MS)
        opened = [START + number * length for number in range(CLEAN + TIMELINE)]
        return [
            {
                "step": number,
                "kind": "train",
                "source": "optimizer",
                "thread": 1,
                "mark_ns": at,
                "end_ns": at + length,
                "phase": "clean" if number < CLEAN else "timeline",
                "burst": 1 if number < CLEAN else 2,
            }
            for number, at in enumerate(opened)
        ]

    def kernels(self) -> list[dict[str, Any]]:
        """Rows of the kernels table: a copy and one long product in each step of the timeline."""
        rows: list[dict[str, Any]] = []
        for step in self.steps()[CLEAN:]:
            at, copied = step["mark_ns"], step["mark_ns"] + round(self.copy_ms * MS)
            more = {"device": 0, "stream": 7, "phase": "timeline", "burst": 2}
            copy: dict[str, Any] = {
                "kind": "copy",
                "name": "Memcpy HtoD (Pinned -> Device)",
                "direction": "HtoD pinned",
            }
            copy["stream"] = 13 if self.overlapped else 7
            rows.append({**more, **copy, "bytes": COPY_BYTES, "start_ns": at, "end_ns": copied})
            product = {"kind": "compute", "name": "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT"}
            begun = at if self.overlapped else copied
            rows.append({**more, **product, "start_ns": begun, "end_ns": step["end_ns"]})
        return [{**row, "correlation": number} for number, row in enumerate(rows)]

    def write(self, folder: Path) -> Any:
        """A sounding of it in `folder`, opened."""
        import polars as pl

        from fathom.sounding import Manifest, Rank, Writer, conform

        writer = Writer(folder)
        for table in ("steps", "kernels", "telemetry"):
            writer.write(0, table, conform(table, pl.DataFrame(getattr(self, table)())))
        rank = Rank(rank=0, world=1, devices={0: GPU["name"]})
        name = folder.name.removesuffix(".fathom")
        manifest = Manifest(name=name, created_ns=START, command=["python", "train.py"], ranks=[rank])
        return writer.finish(manifest, self.machine())
