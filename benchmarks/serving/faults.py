"""Plant faults in a server, and check that each is named first and its gain predicted.

    python -m benchmarks.serving.faults PYTHON MODEL [FAULT ...] [--engine transformers|vllm]

PYTHON has the engine; `benchmarks/serving/tiny.py` makes the MODEL. Both forms of a fault are started and
recorded at once, and loaded in turns: the same requests at the same intervals, while the other form waits.
The true gain is the difference of the mean latencies at the client, with an interval over pairs of requests.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

import numpy as np

import fathom
from benchmarks.serving import engines
from benchmarks.serving.client import Load
from fathom.analysis.serving import Serving
from fathom.units import MS_PER_S, NS_PER_MS

ALONE, ALONE_RATE = 6, 1.0  # requests before the load: they start the engine, and set the rate of some loads
DRAWS = 2000  # of pairs of requests, for the interval of the true gain


@dataclass(frozen=True)
class Planted:
    """A fault: the finding that names it, the load that shows it, and the options of both forms."""

    finding: str
    load: Load
    fault: str = ""  # for `faulty.py`
    faulty: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()
    slow: float = 0.0  # seconds between a faulty client's reads
    at_once: float = 0.0  # arrivals in the time of a request alone; they replace the rate

    def asked(self, model: Path, faulty: bool, seed: int) -> Load:
        """Return the load of one form."""
        load = replace(self.load, model=str(model), seed=seed)
        return replace(load, pause=self.slow) if faulty else load


USUAL = Load(requests=30, rate=4.0, tokens=16, words=60)
TRANSFORMERS = {
    "batch-limit": Planted("serving-batch-limit", replace(USUAL, rate=8.0, words=10), "batch-limit"),
    "slow-tokenizer": Planted("serving-tokenizer", replace(USUAL, tokens=4, words=20), "slow-tokenizer"),
    "slow-detokeniser": Planted("serving-detokeniser", replace(USUAL, words=20), "slow-detokeniser"),
    "no-prefix-cache": Planted(
        "serving-prefix-cache", replace(USUAL, words=20, shared=300, tokens=4, rate=1.0), "no-prefix-cache"
    ),
    "tiny-cache": Planted(
        "serving-kv-cache",
        replace(USUAL, words=20, tokens=48),
        faulty=("--cb-block-size", "32", "--cb-num-blocks", "12"),
        mended=("--cb-block-size", "32", "--cb-num-blocks", "256"),
        at_once=2.0,
    ),
    "large-blocks": Planted(
        "serving-block-size",
        replace(USUAL, words=20, tokens=48),
        faulty=("--cb-block-size", "512", "--cb-num-blocks", "4"),
        mended=("--cb-block-size", "32", "--cb-num-blocks", "64"),
        at_once=2.0,
    ),
    # transformers attends densely to a batch: its time grows with the square of the tokens in it.
    # At 500 words and 3 requests/s, a small machine falls behind for good, and the load never ends.
    "long-prefills": Planted(
        "serving-prefill-blocks-decode",
        replace(USUAL, rate=1.0, words=200, tokens=32),
        faulty=("--cb-max-batch-tokens", "1024"),
        mended=("--cb-max-batch-tokens", "64"),
    ),
    # Its answers take less than the 5 s for which uvicorn keeps a connection that it believes idle.
    "slow-client": Planted("serving-client", replace(USUAL, rate=2.0, words=20), slow=0.25),
}


_CACHE = ("--block-size", "32", "--max-model-len", "320")
_UNCHUNKED = ("--no-enable-chunked-prefill", "--max-num-batched-tokens", "2048")
VLLM = {
    "batch-limit": Planted(
        "serving-batch-limit",
        replace(USUAL, words=10, tokens=32),
        faulty=("--max-num-seqs", "1"),
        at_once=0.8,
    ),
    "tiny-cache": Planted(
        "serving-kv-cache",
        replace(USUAL, words=20, tokens=48),
        faulty=(*_CACHE, "--num-gpu-blocks-override", "12"),
        mended=_CACHE,
        at_once=4.0,
    ),
    "no-prefix-cache": Planted(
        "serving-prefix-cache",
        replace(USUAL, words=20, shared=400, tokens=4),
        faulty=("--no-enable-prefix-caching",),
        at_once=0.3,
    ),
    "slow-tokenizer": Planted("serving-tokenizer", replace(USUAL, words=20), "slow-tokenizer"),
    "slow-client": Planted("serving-client", replace(USUAL, rate=2.0, words=20), slow=0.25),
    "long-prefills": Planted(
        "serving-prefill-blocks-decode",
        replace(USUAL, words=10, tokens=48, long=600),
        faulty=_UNCHUNKED,
        mended=("--max-num-batched-tokens", "64", "--max-num-seqs", "64"),
        at_once=2.0,
    ),
}
ENGINES = {"transformers": (engines.transformers_serve, TRANSFORMERS), "vllm": (engines.vllm_serve, VLLM)}


@dataclass
class Form:
    """The faulty or the mended server of a fault, while it is recorded."""

    faulty: bool
    load: Load
    port: int
    folder: Path
    latencies: list[float]  # ms at the client, in the order of sending

    def drive(self, load: Load) -> list[float]:
        """Send requests, and return their latencies in ms."""
        timed = engines.drive(self.port, self.folder, load)
        return [(sent["end_ns"] - sent["start_ns"]) / NS_PER_MS for sent in timed]


@contextmanager
def started(
    python: str, model: Path, engine: str, planted: Planted, folder: Path, seed: int
) -> Iterator[list[Form]]:
    """Run both forms of a fault under `fathom run`; they end, and are imported, with the block."""
    server, _ = ENGINES[engine]
    forms = [
        Form(faulty, planted.asked(model, faulty, seed), engines.free_port(), folder / str(faulty), [])
        for faulty in (True, False)
    ]
    contexts = []
    for form in forms:
        form.folder.mkdir(parents=True)
        options = planted.faulty if form.faulty else planted.mended
        command = server(python, model, form.port, *options)
        run = [*engines.FATHOM, "run", "--depth", "surface", "-o", str(form.folder / "serve.fathom"), "--"]
        variables = {"SERVING_FAULT": planted.fault} if form.faulty and planted.fault else {}
        log = form.folder / "server.log"
        contexts.append(engines.running([*run, *command], form.port, log, **variables))
    with ExitStack() as stack, ThreadPoolExecutor(len(forms)) as pool:
        list(pool.map(stack.enter_context, contexts))
        yield forms


def in_turns(forms: list[Form], planted: Planted, turns: int, pace: float) -> None:
    """Load the forms one after the other, in random order, `turns` times with other requests each time.

    A prediction is for all recorded requests, so that those before the load count too.
    """
    for form in forms:
        first = replace(form.load, requests=ALONE, rate=ALONE_RATE, pause=0.0)
        form.latencies += form.drive(first)
    alone = median(forms[0].latencies)
    rate = pace * (MS_PER_S * planted.at_once / alone if planted.at_once else planted.load.rate)
    order = random.Random(forms[0].load.seed)
    for number in range(turns):
        for form in order.sample(forms, len(forms)):
            seed = turns * form.load.seed + number
            form.latencies += form.drive(replace(form.load, rate=rate, seed=seed))


def measured(
    python: str, model: Path, engine: str, planted: Planted, folder: Path, seed: int, turns: int, pace: float
) -> list[Form]:
    """Record both forms, and return them with their latencies."""
    with started(python, model, engine, planted, folder, seed) as forms:
        in_turns(forms, planted, turns, pace)
    return forms


def true_gain(faulty: list[float], mended: list[float]) -> tuple[float, float, float]:
    """Return the mean saving per request in ms, and its 95 % interval over pairs of requests."""
    pairs = np.subtract(faulty, mended)
    drawn = np.random.default_rng(1).choice(pairs, (DRAWS, len(pairs))).mean(axis=1)
    return float(pairs.mean()), *(float(value) for value in np.quantile(drawn, (0.025, 0.975)))


def account(form: Form) -> Serving:
    """Return the account of a form's requests."""
    result = fathom.open(form.folder / "serve.fathom").examine().serving
    assert result is not None
    return result


def outcome(planted: Planted, forms: list[Form]) -> str:
    """Return whether the fault is named first, and whether its gain's interval holds the true one."""
    faulty, mended = (account(form).findings for form in forms)
    names = [finding.id for finding in faulty]
    true, low, high = true_gain(*(form.latencies for form in forms))
    first = next(iter(faulty), None)
    gain = f"{first.gain_ms:.1f} ({first.low_ms:.1f} to {first.high_ms:.1f})" if first else "none"
    inside = first is not None and first.low_ms <= true <= first.high_ms
    quiet = planted.finding not in [finding.id for finding in mended]
    means = " -> ".join(f"{mean(form.latencies):.1f}" for form in forms)
    return (
        f"first={bool(names) and names[0] == planted.finding} inside={inside} mended-quiet={quiet} "
        f"{means} ms, true gain {true:.1f} ({low:.1f} to {high:.1f}), predicted {gain}, {names}"
    )


def main() -> None:
    """Print a line for each fault: its first finding, the true and the predicted gain."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python")
    parser.add_argument("model", type=Path)
    parser.add_argument("faults", nargs="*", help=", ".join({**TRANSFORMERS, **VLLM}))
    parser.add_argument("--engine", choices=tuple(ENGINES), default="transformers")
    parser.add_argument(
        "--seed", type=int, default=1, help="Of arrivals and prompts: other inputs of the same kind."
    )
    parser.add_argument("--pace", type=float, default=1.0, help="Factor of all rates, for slower machines.")
    parser.add_argument("--turns", type=int, default=3, help="Loads of each form.")
    parser.add_argument("--keep", type=Path, help="Folder for the recordings.")
    chosen = parser.parse_args()
    planted = ENGINES[chosen.engine][1]
    about = (chosen.seed, chosen.turns, chosen.pace)
    for name in chosen.faults or planted:
        with tempfile.TemporaryDirectory() as made:
            folder = (chosen.keep or Path(made)) / f"{name}-{chosen.seed}"
            shutil.rmtree(folder, ignore_errors=True)
            forms = measured(chosen.python, chosen.model, chosen.engine, planted[name], folder, *about)
            print(name, outcome(planted[name], forms), flush=True)


if __name__ == "__main__":
    main()
