"""Run cases for a given time, and keep a minimal reproduction of each new failure.

python -m tests.fuzz --minutes 60 --seed 1 --out build/fuzz
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as with_seed

from tests.fuzz.cases import Case, cases
from tests.fuzz.commands import Commands, failure

EACH = 100  # cases between two looks at the clock


class Fuzzer:
    """Distinct cases, and what went wrong in them."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.seen: set[bytes] = set()  # digests: cases may hold long texts
        self.kinds: Counter[str] = Counter()
        self.failures: dict[str, Case] = {}
        self.commands, self._scratch = Commands(), TemporaryDirectory(prefix="fathom-fuzz-")

    def run(self, case: Case) -> None:
        """Run one case, unless it was run before."""
        digest = sha256(json.dumps(case, sort_keys=True).encode()).digest()
        if digest in self.seen:
            return
        self.seen.add(digest)
        self.kinds[case["kind"]] += 1
        if (wrong := self._wrong(case)) and _mechanism(wrong) not in self.failures:
            self.failures[_mechanism(wrong)] = case
            small = self._minimal(case, _mechanism(wrong))
            self._keep(small, wrong)

    def _wrong(self, case: Case) -> str | None:
        return failure(self.commands, case, Path(self._scratch.name))

    def _minimal(self, case: Case, mechanism: str) -> Case:
        """Drop damage and commands while the case fails in the same way."""
        for key in ("damage", "commands"):
            for item in list(case[key]):
                fewer = case | {key: [other for other in case[key] if other is not item]}
                if fewer["commands"] and _mechanism(self._wrong(fewer) or "") == mechanism:
                    case = fewer
        return case

    def _keep(self, case: Case, wrong: str) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"\W+", "-", _mechanism(wrong))[:60].strip("-").lower()
        (self.out / f"{name}.json").write_text(json.dumps(case | {"was": wrong}, indent=1) + "\n")
        print(f"{len(self.seen):,} {case['kind']}: {wrong}", flush=True)


def _mechanism(wrong: str) -> str:
    """Return a failure without its numbers and quoted texts, so that it counts once."""
    return re.sub(
        r"'[^']*'|\"[^\"]*\"|\d+(?!\S*:)", "", wrong.partition(": ")[0] + wrong.partition(": ")[2][:30]
    )


def main() -> None:
    """Run until the time is over; exit with status 1 after a failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"))
    options = parser.parse_args()
    fuzzer, until, seed = Fuzzer(options.out), time.monotonic() + 60 * options.minutes, options.seed * 10**6
    while time.monotonic() < until:

        @with_seed(seed)
        @settings(
            max_examples=EACH,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(cases())
        def some(case: Case) -> None:
            if time.monotonic() < until:
                fuzzer.run(case)

        some()
        seed += 1
    counted = ", ".join(f"{count:,} {kind}" for kind, count in fuzzer.kinds.most_common())
    print(f"{len(fuzzer.seen):,} distinct inputs ({counted}): {len(fuzzer.failures)} failures")
    sys.exit(bool(fuzzer.failures))


if __name__ == "__main__":
    main()
