"""Plant faults in `transformers serve`, and check that each is named first and its gain predicted.

    python -m benchmarks.serving.faults PYTHON MODEL [FAULT ...]

PYTHON has transformers[serving]; `benchmarks/serving/tiny.py` makes the MODEL. Both forms of a fault run side
by side under the same load, so that whatever else uses the cores disturbs both at the same time.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import fathom
from benchmarks.serving import engines
from benchmarks.serving.client import Load
from fathom.analysis.serving import Serving


@dataclass(frozen=True)
class Planted:
    """A fault: the finding that names it, the load that shows it, and the options of both forms."""

    finding: str
    load: Load
    fault: str = ""  # for `faulty.py`
    faulty: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()
    slow: float = 0.0  # seconds between a faulty client's reads

    def asked(self, model: Path, faulty: bool, seed: int) -> Load:
        """Return the load of one form."""
        load = replace(self.load, model=str(model), seed=seed)
        return replace(load, pause=self.slow) if faulty else load


USUAL = Load(requests=30, rate=4.0, tokens=16, words=60)
PLANTED = {
    "batch-limit": Planted("serving-batch-limit", replace(USUAL, rate=8.0, words=10), "batch-limit"),
    "slow-tokenizer": Planted("serving-tokenizer", replace(USUAL, tokens=4, words=20), "slow-tokenizer"),
    "slow-detokeniser": Planted("serving-detokeniser", replace(USUAL, words=20), "slow-detokeniser"),
    "no-prefix-cache": Planted(
        "serving-prefix-cache", replace(USUAL, words=20, shared=300, tokens=4, rate=1.0), "no-prefix-cache"
    ),
    "tiny-cache": Planted(
        "serving-kv-cache",
        replace(USUAL, rate=10.0, words=20, tokens=48),
        faulty=("--cb-block-size", "32", "--cb-num-blocks", "12"),
        mended=("--cb-block-size", "32", "--cb-num-blocks", "256"),
    ),
    "large-blocks": Planted(
        "serving-block-size",
        replace(USUAL, rate=10.0, words=20, tokens=48),
        faulty=("--cb-block-size", "512", "--cb-num-blocks", "4"),
        mended=("--cb-block-size", "32", "--cb-num-blocks", "64"),
    ),
    # transformers attends densely to a batch: its time grows with the square of the tokens in it.
    # At 500 words and 3 requests/s, a small machine falls behind for good, and the load never ends.
    "long-prefills": Planted(
        "serving-prefill-blocks-decode",
        replace(USUAL, rate=1.0, words=200, tokens=32),
        faulty=("--cb-max-batch-tokens", "1024"),
        mended=("--cb-max-batch-tokens", "64"),
    ),
    "slow-client": Planted(
        "serving-client",
        replace(USUAL, rate=2.0, words=20, tokens=48),
        slow=0.25,
    ),
}


def recorded(python: str, model: Path, planted: Planted, load: Load, faulty: bool, folder: Path) -> Serving:
    """Record one form under the load, and return the account of its requests."""
    port = engines.free_port()
    options = planted.faulty if faulty else planted.mended
    command = engines.transformers_serve(python, model, port, *options)
    variables = {"SERVING_FAULT": planted.fault} if faulty and planted.fault else {}
    folder.mkdir(parents=True)
    engines.record(command, port, folder, load, "--depth", "surface", **variables)
    result = fathom.open(folder / "serve.fathom").examine().serving
    assert result is not None
    return result


def both(
    python: str, model: Path, planted: Planted, folder: Path, seed: int, pace: float
) -> tuple[Serving, Serving]:
    """Record both forms side by side."""
    forms = (True, False)
    loads = [planted.asked(model, faulty, seed) for faulty in forms]
    loads = [replace(load, rate=pace * load.rate) for load in loads]
    with ThreadPoolExecutor(2) as pool:
        started = [
            pool.submit(recorded, python, model, planted, load, faulty, folder / str(faulty))
            for load, faulty in zip(loads, forms, strict=True)
        ]
    faulty, mended = (form.result() for form in started)
    return faulty, mended


def main() -> None:
    """Print a line for each fault: its first finding, the predicted and the true gain."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python")
    parser.add_argument("model", type=Path)
    parser.add_argument("faults", nargs="*", help=", ".join(PLANTED))
    parser.add_argument(
        "--seed", type=int, default=1, help="Of arrivals and prompts: other inputs of the same kind."
    )
    parser.add_argument("--pace", type=float, default=1.0, help="Factor of all rates, for slower machines.")
    parser.add_argument("--keep", type=Path, help="Folder for the recordings.")
    chosen = parser.parse_args()
    for name in chosen.faults or PLANTED:
        planted = PLANTED[name]
        with tempfile.TemporaryDirectory() as made:
            folder = (chosen.keep or Path(made)) / f"{name}-{chosen.seed}"
            shutil.rmtree(folder, ignore_errors=True)
            forms = both(chosen.python, chosen.model, planted, folder, chosen.seed, chosen.pace)
        print(name, outcome(planted, *forms), flush=True)


def outcome(planted: Planted, faulty: Serving, mended: Serving) -> str:
    """Return whether the fault is named first, and whether its gain's interval holds the true one."""
    names = [finding.id for finding in faulty.findings]
    true = faulty.e2e_ms.mean - mended.e2e_ms.mean
    first = next(iter(faulty.findings), None)
    right = first is not None and first.id == planted.finding
    gain = f"{first.low_ms:.0f} to {first.high_ms:.0f}" if first else "none"
    inside = first is not None and first.low_ms <= true <= first.high_ms
    quiet = planted.finding not in [finding.id for finding in mended.findings]
    means = f"{faulty.e2e_ms.mean:.0f} -> {mended.e2e_ms.mean:.0f} ms"
    return f"first={right} inside={inside} mended-quiet={quiet} {means}, predicted {gain}, {names}"


if __name__ == "__main__":
    main()
