"""Damaged inputs end in one sentence, within limits on time and memory; `make fuzz` runs an hour of them.

The corpus holds a minimal reproduction of each failure that was found and mended, in `tests/fuzz/corpus`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.cases import Case, cases, prepare
from tests.fuzz.commands import Commands, failure
from tests.support.running import run_fathom

CORPUS = Path(__file__).parent / "corpus"
EXAMPLES = 30  # of the same seed each time


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    shared = Commands()
    yield shared
    shared.close()


@pytest.mark.parametrize("file", sorted(CORPUS.glob("*.json")), ids=lambda file: file.stem)
def test_corpus(commands: Commands, tmp_path: Path, file: Path) -> None:
    assert failure(commands, json.loads(file.read_text()), tmp_path) is None


def test_new_cases(commands: Commands, tmp_path: Path) -> None:
    @seed(20)
    @settings(
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def check(case: Case) -> None:
        assert failure(commands, case, tmp_path) is None

    check()


@pytest.mark.parametrize("name", ["reversed-rows", "hostile-names", "explosive-pattern"])
def test_as_users_run_it(tmp_path: Path, name: str) -> None:
    case = json.loads((CORPUS / f"{name}.json").read_text())
    for words in prepare(case, tmp_path / "case"):
        done = run_fathom(*words, cwd=tmp_path, timeout=30)
        assert done.returncode in (0, 2) and "Traceback" not in done.stderr
        assert "unexpected" not in done.stderr and "\x1b" not in done.stdout + done.stderr
        assert done.stderr.count("\n") == bool(done.returncode)
