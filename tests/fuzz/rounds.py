"""One round of the fuzzer, in a separate process: cases of one seed, minimal reproductions of failures.

python -m tests.fuzz.rounds SEED SECONDS OUT: digests that were seen as JSON in, a JSON object out.
"""

from __future__ import annotations

import json
import re
import resource
import sys
import time
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.cases import Case, cases
from tests.fuzz.commands import Commands, failure

CASES = 300  # of a round
LIMIT = 8 << 30  # bytes of addresses: an input that is larger could not be written


class Round:
    """Distinct cases, and what went wrong in them."""

    def __init__(self, out: Path, known: set[str]) -> None:
        self.out, self._known = out, known
        self.seen: dict[str, str] = {}  # kinds by digest: cases may hold long texts
        self.failures: set[str] = set()
        self.commands, self._scratch = Commands(), TemporaryDirectory(prefix="fathom-fuzz-")

    def run(self, case: Case) -> None:
        """Run one case, unless it was run before."""
        digest = sha256(json.dumps(case, sort_keys=True).encode()).hexdigest()
        if digest in self.seen or digest in self._known:
            return
        self.seen[digest] = case["kind"]
        if wrong := self._wrong(case):
            self._keep(case, wrong)

    def _wrong(self, case: Case) -> str | None:
        return failure(self.commands, case, Path(self._scratch.name))

    def _keep(self, case: Case, wrong: str) -> None:
        """Write a minimal reproduction, unless there is one."""
        self.failures.add(mechanism(wrong))
        name = re.sub(r"\W+", "-", mechanism(wrong))[:60].strip("-").lower()
        file = self.out / f"{name}.json"
        if not file.exists():
            small = self._minimal(case, mechanism(wrong))
            self.out.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(small | {"was": wrong}, indent=1) + "\n")
            print(f"{case['kind']}: {wrong}", file=sys.stderr, flush=True)

    def _minimal(self, case: Case, same: str) -> Case:
        """Drop damage and commands while the case fails in the same way."""
        for key in ("damage", "commands"):
            for item in list(case[key]):
                fewer = case | {key: [other for other in case[key] if other is not item]}
                if fewer["commands"] and mechanism(self._wrong(fewer) or "") == same:
                    case = fewer
        return case


def mechanism(wrong: str) -> str:
    """Return a failure without its numbers and quoted texts, so that it counts once."""
    return re.sub(
        r"'[^']*'|\"[^\"]*\"|\d+(?!\S*:)", "", wrong.partition(": ")[0] + wrong.partition(": ")[2][:30]
    )


def main() -> None:
    """Run the cases of a seed until the time is over."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, resource.getrlimit(resource.RLIMIT_AS)[1]))
    number, until = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
    this = Round(Path(sys.argv[3]), set(json.load(sys.stdin)))

    @seed(number)
    @settings(
        max_examples=CASES,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def some(case: Case) -> None:
        if time.monotonic() < until:
            this.run(case)

    try:
        some()
    except Exception as error:  # of the fuzzer: Hypothesis adds the text of all strategies
        sys.exit(f"{type(error).__name__}: {str(error)[:200]}")
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seen": this.seen, "failures": sorted(this.failures), "peak_gib": peak_gib}))


if __name__ == "__main__":
    main()
