"""Serve drafts that are accepted seldom or often, and check that drafting is named where it costs time.

    python -m benchmarks.serving.speculating [--seed 2]

No engine with speculative decoding runs without a GPU. This one multiplies matrices for every token that it
reads, schedules as vLLM does, and reports through the same records as Fathom's hooks. Which tokens are right
is drawn, so the share of drafts that are accepted is known. Half of the decodes have no drafts, as where an
n-gram finds no match. The true gain is that of the same requests served without drafts.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from benchmarks.serving.vllm_scheduler import Session
from fathom.analysis.serving import Serving as Account
from fathom.analysis.serving import requests_account
from fathom.diagnosis.serving import serving_findings
from fathom.probe.engines.scheduled import Scheduled
from fathom.probe.engines.serving import DECODE, PREFILL, Serving
from fathom.sounding.raw.serving import PHASES
from fathom.sounding.schema import TABLES

WIDTH, LAYERS, DRAFTED, BATCH = 1024, 12, 5, 4
REQUESTS, PER_S, PROMPT, GENERATED = 40, 4.0, 16, 24
SELDOM, OFTEN = 0.05, 0.9
FINDING = "serving-low-acceptance"


@dataclass
class Asked:
    """One request: when it arrives (s), its key, and the tokens that it has."""

    at: float
    key: str
    tokens: list[int] = field(default_factory=list)
    done: bool = False


class Engine:
    """Reads tokens through random layers; a decode of some requests verifies drafts."""

    def __init__(self, acceptance: float | None, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.acceptance = acceptance  # None: no drafts
        self.layers = self.draw.standard_normal((LAYERS, WIDTH, WIDTH), dtype=np.float32) / WIDTH**0.5
        self.session = Session()
        self.serving = Serving(self.session)  # type: ignore[arg-type]
        self.batches = Scheduled(self.serving)

    def serve(self, asked: list[Asked]) -> None:
        """Serve the requests as they arrive."""
        coming, running, begun = deque(asked), list[Asked](), time.perf_counter()
        while coming or running:
            while coming and coming[0].at <= time.perf_counter() - begun and len(running) < BATCH:
                request = coming.popleft()
                self.serving.submitted(request.key, range(PROMPT))
                running.append(request)
            if running:
                self._iterate(running)
                running = [request for request in running if not request.done]
            else:
                time.sleep(0.001)

    def _iterate(self, running: list[Asked]) -> None:
        start = time.time_ns()
        reads = [request for request in running if not request.tokens]
        batch = reads or running
        drafts = not reads and self.acceptance is not None and self.draw.random() < 0.5
        each = PROMPT if reads else 1 + DRAFTED * drafts
        phase = PREFILL if reads else DECODE
        turns = [(self.serving.of(request.key), phase, each, 0) for request in batch]
        self.batches.begin(start, [turn for turn in turns if turn[0]], 0, 0, 1)  # type: ignore[misc]
        states = np.ones((len(batch) * each, WIDTH), dtype=np.float32)
        for layer in self.layers:
            states = np.tanh(states @ layer)
        self.batches.computed()
        for request in batch:
            request.tokens += [0] * (1 + (self._accepted() if drafts else 0))
            request.tokens[GENERATED:] = []
            request.done = len(request.tokens) == GENERATED
        known = {request.key: request for request in batch}
        self.batches.end(known, lambda own: len(own.tokens), lambda own: own.done)

    def _accepted(self) -> int:
        """Return how many drafted tokens are right, up to the first that is wrong."""
        right = self.draw.random(DRAFTED) < (self.acceptance or 0.0)
        return int(np.argmin(np.append(right, False)))

    def tables(self) -> dict[str, pl.DataFrame]:
        """Return what was recorded."""
        rows = {kind: self.session.rows(kind) for kind in ("requests", "iterations")}
        iterations = [{"iteration": number, **row} for number, row in enumerate(rows["iterations"])]
        turns = [
            {"iteration": row["iteration"], "request": of, "phase": PHASES[phase]}
            | {"tokens": tokens, "generated": generated}
            for row in iterations
            for of, phase, tokens, generated in row["turns"]
        ]
        made = {"requests": rows["requests"], "iterations": iterations, "turns": turns, "request_spans": []}
        return {name: _table(name, of) for name, of in made.items()}


def _table(name: str, rows: list[dict]) -> pl.DataFrame:
    columns = TABLES[name]
    named = [{(key if key in columns else f"{key}_ns"): value for key, value in row.items()} for row in rows]
    renamed = [{("start_ns" if key == "arrival_ns" else key): v for key, v in row.items()} for row in named]
    kept = [{key: value for key, value in row.items() if key in columns} for row in renamed]
    return pl.DataFrame(kept, schema=columns, strict=False)


def served(acceptance: float | None, seed: int) -> Account:
    """Serve the same requests with this share of drafts accepted, and return their account."""
    gaps = np.random.default_rng(seed + 1).exponential(1 / PER_S, REQUESTS)
    engine = Engine(acceptance, seed)
    engine.serve([Asked(float(at), str(number)) for number, at in enumerate(np.cumsum(gaps))])
    tables = engine.tables()
    account = requests_account(tables)
    account.findings = serving_findings(account, tables)
    return account


def main() -> None:
    """Print a line for each share of drafts: the findings, the predicted and the true gain."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    seed = parser.parse_args().seed
    for acceptance in (SELDOM, OFTEN):
        with_drafts, plain = served(acceptance, seed), served(None, seed)
        true = with_drafts.e2e_ms.mean - plain.e2e_ms.mean
        mine = [finding for finding in with_drafts.findings if finding.id == FINDING]
        gain = (
            f"{mine[0].low_ms:.0f} to {mine[0].high_ms:.0f}, likely {mine[0].gain_ms:.0f}" if mine else "none"
        )
        names = [finding.id for finding in with_drafts.findings]
        means = f"{with_drafts.e2e_ms.mean:.0f} -> {plain.e2e_ms.mean:.0f} ms"
        print(f"accepted={acceptance} true={true:.0f} ({means}), predicted {gain}, {names}", flush=True)


if __name__ == "__main__":
    main()
