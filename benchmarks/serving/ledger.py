"""Compare every request's ledger with the latency that its client saw, under three arrival rates.

    python -m benchmarks.serving.ledger PYTHON MODEL [--engine transformers|llama|vllm|sglang] [--rates 1 2 4]

PYTHON has the engine installed; `benchmarks/serving/tiny.py` makes the MODEL.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import polars as pl

import fathom
from benchmarks.serving import engines
from benchmarks.serving.client import Load
from fathom.units import NS_PER_MS

WITHIN, AT_LEAST_MS = 0.01, 1.0
ENGINES = {
    "transformers": engines.transformers_serve,
    "llama": engines.llama_server,
    "vllm": engines.vllm_serve,
    "sglang": engines.sglang_server,
}


def compared(path: Path, client: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Return (latency at the client, sum of the ledger) in ms of each of the client's requests."""
    sounding = fathom.open(path)
    requests = sounding.table("requests").collect().sort("start_ns").tail(len(client))
    sums = sounding.request_ledger.group_by("request").agg(pl.col("ms").sum())
    ledger = requests.join(sums, on="request", maintain_order="left")["ms"].to_list()
    return [((c["end_ns"] - c["start_ns"]) / NS_PER_MS, ms) for c, ms in zip(client, ledger, strict=True)]


def agrees(client_ms: float, ledger_ms: float) -> bool:
    """Return whether the ledger is within 1 % of the client's latency, or within 1 ms."""
    return abs(client_ms - ledger_ms) <= max(WITHIN * client_ms, AT_LEAST_MS)


def main() -> None:
    """Print how many requests agree, by arrival rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python")
    parser.add_argument("model", type=Path)
    parser.add_argument("--engine", choices=tuple(ENGINES), default="transformers")
    parser.add_argument("--rates", type=float, nargs="+", default=(1.0, 2.0, 4.0))
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--keep", type=Path, help="Folder for the last recording.")
    chosen = parser.parse_args()
    server = ENGINES[chosen.engine]
    for rate in chosen.rates:
        with tempfile.TemporaryDirectory() as made:
            folder, port = Path(chosen.keep or made), engines.free_port()
            load = Load(chosen.requests, rate, model=str(chosen.model))
            command = server(chosen.python, chosen.model, port)
            options = ("--depth", "surface", "--replace")
            client = engines.record(command, port, folder, load, *options)
            pairs = compared(folder / "serve.fathom", client)
        good = sum(agrees(*pair) for pair in pairs)
        worst = max(abs(c - s) / max(WITHIN * c, AT_LEAST_MS) for c, s in pairs)
        mean = sum(c for c, _ in pairs) / len(pairs)
        line = f"{good} of {len(pairs)} agree, mean {mean:.0f} ms, worst {worst:.2f} of the limit"
        print(f"{chosen.engine} {rate:g}/s: {line}")


if __name__ == "__main__":
    main()
