"""Plant faults in vLLM's own scheduler, with a model whose time is drawn: how often do predicted gains hold?

    PYTHON -m benchmarks.serving.simulated MODEL [--seeds 20]

PYTHON has vllm and Fathom. As in `vllm_scheduler.py`, the scheduler is vLLM's, and no model runs. A clock
advances by the time that an iteration would take, so the true gain is known however busy this machine is.
Iterations scatter, some are interrupted, and the speed differs between runs, as on the two cores where
`faults.py` loads real servers.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

import polars as pl

from benchmarks.serving.vllm_scheduler import Session, answer, request_of, scheduler_of
from fathom.analysis.serving import ServingFinding, requests_account
from fathom.diagnosis.serving import serving_findings
from fathom.probe.engines import scheduled, serving, vllm
from fathom.probe.engines.serving import Serving
from fathom.probe.hooks.patches import Patches
from fathom.sounding.schema import TABLES
from fathom.units import NS_PER_MS, NS_PER_S

FIXED, TOKEN, DECODE = 1.5, 0.06, 0.3  # ms of an iteration, of a prompt token, and of a decoding request
SCATTER, RUNS = 0.15, 0.05  # of an iteration, and of the speed of a run
INTERRUPTED, BY = 0.05, 4.0  # of the iterations, and how many times as long they take
BEGUN = 1_700_000_000.0  # s: when the first request arrives
PHASES = ("prefill", "decode", "recompute")
FEW = {"blocks": 12, "block": 32}
MANY = {"blocks": 2000, "block": 32}


@dataclass(frozen=True)
class Planted:
    """A fault: its finding, the options of both forms, and the load."""

    finding: str
    faulty: dict[str, Any]
    mended: dict[str, Any] = field(default_factory=dict)
    rate: float = 20.0  # requests per second
    prompt: tuple[int, int] = (40, 70)  # tokens, at least and at most
    generate: int = 48
    shared: int = 0  # tokens that all prompts begin with
    long: int = 0  # tokens of every fifth prompt


FAULTS = {
    "tiny-cache": Planted("serving-kv-cache", FEW),
    "large-blocks": Planted("serving-block-size", {"blocks": 6, "block": 256}, {"blocks": 48, "block": 32}),
    "batch-limit": Planted("serving-batch-limit", {"max_num_seqs": 1}, rate=8.0),
    "limit-of-four": Planted("serving-batch-limit", {"max_num_seqs": 4}, rate=22.0),
    "no-prefix-cache": Planted("serving-prefix-cache", {"caching": False}, shared=400, generate=4),
    "long-prefills": Planted(
        "serving-prefill-blocks-decode",
        {"enable_chunked_prefill": False, "max_num_batched_tokens": 2048},
        {"max_num_batched_tokens": 64, "max_num_seqs": 64},
        long=800,
        rate=8.0,
    ),
}


class Clock:
    """The time of the simulated machine, in ns."""

    def __init__(self, draw: random.Random) -> None:
        self.ns, self.draw = round(BEGUN * NS_PER_S), draw
        self.speed = max(draw.gauss(1.0, RUNS), 0.5)

    def __call__(self) -> int:
        return self.ns

    @contextmanager
    def at(self, seconds: float) -> Iterator[None]:
        """Show another time for a while."""
        now, self.ns = self.ns, round(seconds * NS_PER_S)
        yield
        self.ns = now

    def iterate(self, read: int, decoding: int) -> None:
        """Pass the time of an iteration."""
        ms = (FIXED + TOKEN * read + DECODE * decoding) * self.speed * self.draw.lognormvariate(0, SCATTER)
        self.ns += round(ms * (BY if self.draw.random() < INTERRUPTED else 1.0) * NS_PER_MS)


@contextmanager
def hooked(session: Session, clock: Clock) -> Iterator[None]:
    """Record vLLM's scheduler by another clock."""
    modules, patches = (scheduled, serving, vllm), Patches()
    for module in modules:
        patches.set(module, "now", clock)
    vllm.install(Serving(session), patches)  # type: ignore[arg-type]
    yield
    patches.undo()


def requests_of(planted: Planted, count: int, seed: int, block: int) -> list[Any]:
    """Return requests at exponential intervals."""
    draw, at, result = random.Random(f"requests {seed}"), BEGUN, []
    for number in range(count):
        tokens = planted.long if planted.long and number % 5 == 4 else draw.randint(*planted.prompt)
        prompt = [7] * planted.shared + [draw.randrange(100, 20_000) for _ in range(tokens)]
        result.append(request_of(number, prompt, planted.generate, block, at))
        at += draw.expovariate(planted.rate)
    return result


def recorded(model: str, planted: Planted, faulty: bool, count: int, seed: int) -> dict[str, pl.DataFrame]:
    """Serve the requests under the hooks, and return what they recorded."""
    options = {**MANY, "max_num_batched_tokens": 512, "max_num_seqs": 128}
    options |= planted.faulty if faulty else planted.mended
    session, clock = Session(), Clock(random.Random(f"speed {seed} {faulty}"))
    with hooked(session, clock):
        scheduler = scheduler_of(model, **options)
        coming = requests_of(planted, count, seed, options["block"])
        while coming or scheduler.get_num_unfinished_requests():
            while coming and coming[0].arrival_time * NS_PER_S <= clock.ns:
                with clock.at(coming[0].arrival_time):  # another thread of the engine receives it
                    scheduler.add_request(coming.pop(0))
            output = scheduler.schedule()
            decoding = sum(tokens == 1 for tokens in output.num_scheduled_tokens.values())
            if output.num_scheduled_tokens:
                clock.iterate(output.total_num_scheduled_tokens - decoding, decoding)
                answer(scheduler, output)
            elif coming:
                clock.ns = round(coming[0].arrival_time * NS_PER_S)
    return tables_of(session)


def tables_of(session: Session) -> dict[str, pl.DataFrame]:
    """Return the rows as a sounding's tables."""
    iterations = session.rows("iterations")
    turns = [
        {"iteration": n, "request": of, "phase": PHASES[phase], "tokens": tokens, "generated": made}
        for n, row in enumerate(iterations)
        for of, phase, tokens, made in row.pop("turns")
    ]
    rows = {
        "requests": [{"start": row["arrival"], **row} for row in session.rows("requests")],
        "request_spans": session.rows("spans"),
        "iterations": [{"iteration": n, **row} for n, row in enumerate(iterations)],
        "turns": turns,
    }
    return {
        name: pl.DataFrame([_named(row, TABLES[name]) for row in of], TABLES[name], strict=False)
        for name, of in rows.items()
    }


def _named(row: dict[str, Any], schema: Any) -> dict[str, Any]:
    return {name: row.get(name, row.get(name.removesuffix("_ns"))) for name in schema}


def judged(model: str, planted: Planted, count: int, seed: int) -> tuple[float, ServingFinding | None]:
    """Return the true gain, and the first finding."""
    faulty, mended = (recorded(model, planted, form, count, seed) for form in (True, False))
    account, without = (requests_account(tables) for tables in (faulty, mended))
    findings = serving_findings(account, faulty)
    return account.e2e_ms.mean - without.e2e_ms.mean, next(iter(findings), None)


def main() -> None:
    """Print, for each fault, how often it is named first, and how often the interval holds the true gain."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("faults", nargs="*", help=", ".join(FAULTS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--requests", type=int, default=90)
    parser.add_argument("--verbose", action="store_true", help="Print each run too.")
    chosen = parser.parse_args()
    for name in chosen.faults or FAULTS:
        runs = [judged(chosen.model, FAULTS[name], chosen.requests, seed) for seed in range(chosen.seeds)]
        for true, finding in runs if chosen.verbose else ():
            print(
                f"    {true:.1f}", finding and (finding.id, finding.gain_ms, finding.low_ms, finding.high_ms)
            )
        print(name, summary(FAULTS[name], runs), flush=True)


def summary(planted: Planted, runs: list[tuple[float, ServingFinding | None]]) -> str:
    """Return how right the first findings are."""
    right = [(true, of) for true, of in runs if of is not None and of.id == planted.finding]
    inside = sum(of.low_ms <= true <= of.high_ms for true, of in right)
    if not right:
        return f"named first 0 of {len(runs)}"
    errors = median(abs(of.gain_ms - true) / max(abs(true), 1.0) for true, of in right)
    width = median((of.high_ms - of.low_ms) / max(abs(true), 1.0) for true, of in right)
    gains = f"{mean(true for true, _ in right):.1f} ms, predicted {mean(of.gain_ms for _, of in right):.1f}"
    return (
        f"named first {len(right)} of {len(runs)}, interval holds {inside}; mean true gain {gains}; "
        f"median error {errors:.0%}, width {width:.1f} of the gain"
    )


if __name__ == "__main__":
    main()
