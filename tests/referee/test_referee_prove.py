"""Proofs from end to end, in real processes, and what their answers look like. No speed is asserted."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console

import fathom
from fathom.errors import BadInputError
from fathom.referee import Comparison, Pair, Refusal, Settings, Timing, Verdict, command_of, prove_pair
from fathom.referee.programs import read_metrics
from fathom.referee.proof import _concluded
from fathom.referee.sides import SideError
from fathom.report import digest, print_verdict
from tests.support.paths import CHEATS
from tests.support.running import run_fathom

HONEST = str(CHEATS / "honest.py")
QUICK: dict[str, Any] = {"budget_s": 0, "block_s": 0.01, "patience_s": 60, "fresh": "fork"}

pytestmark = pytest.mark.programs
PLAIN = """
import numpy as np

def inputs(seed):
    return {"x": np.random.default_rng(seed).standard_normal(3000)}
def plain(x):
    return {"twice": np.array([2.0 * v for v in x.tolist()]), "n": len(x)}
def tuned(x):
    return {"twice": 2.0 * x, "n": len(x)}
def other(x):
    return {"twice": 2.0 * x, "n": len(x) + 1}
def work(x):
    return {"flops": len(x), "bytes": 16 * len(x)}
def same_inputs(seed):
    return np.ones(5)
def other_inputs(seed):
    return np.random.default_rng().random(1)
def odd(x):
    return object()
def failing(x):
    raise LookupError("not here")
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "pair.py"
    path.write_text(PLAIN)
    return str(path)


def test_a_loop_against_one_call(file: str) -> None:
    verdict = fathom.prove(f"{file}:plain", f"{file}:tuned", work=f"{file}:work", **QUICK)
    assert verdict.verdict == "faster" and verdict.reasons == []
    assert verdict.ratio is not None and verdict.ratio < 0.5
    assert verdict.interval is not None and verdict.interval[0] <= verdict.ratio <= verdict.interval[1]
    (only,) = verdict.timings
    assert only.pairs == 6 and only.baseline.ns > only.candidate.ns > 0
    places = {result.place: result for result in verdict.agreement}
    twice = places["result['twice']"]
    assert twice.dtype == "float64" and twice.relative_norm == 0 and twice.allowed_norm
    record = {"flops": 3000, "bytes": 48000, "unit": "matmul.fp64", "source": "given"}
    assert verdict.work == record | {"written": 8 * 3000 + 8}
    assert verdict.reference == "the baseline in double precision"
    assert verdict.compared == twice.calls >= 3 + 6 and verdict.fault_rate is not None


def test_a_wrong_number_is_refused_before_anything_is_timed(file: str) -> None:
    verdict = fathom.prove(f"{file}:plain", f"{file}:other", **QUICK)
    assert verdict.verdict == "refused" and verdict.timings == [] and verdict.ratio is None
    assert [reason.code for reason in verdict.reasons] == ["wrong-result"]


def test_functions_themselves_are_sides_too() -> None:
    from tests.cheats import aliases_input, honest

    verdict = fathom.prove(honest.baseline, aliases_input.candidate, honest.inputs, **QUICK)
    assert verdict.reasons[0].code == "aliases-input"
    with pytest.raises(BadInputError, match="cannot be imported"):
        fathom.prove(honest.baseline, lambda a, b: a, honest.inputs)


def test_what_a_pair_allows_is_told_and_excused(file: str) -> None:
    cheat = str(Path(HONEST).parent / "ignores_errors.py")
    pair = Pair(
        plain=f"{HONEST}:baseline",
        tuned=f"{cheat}:candidate",
        inputs=f"{HONEST}:inputs",
        allow=("global-state",),
    )
    verdict = prove_pair(pair, Settings(**QUICK))
    assert verdict.verdict != "refused" and [reason.code for reason in verdict.excused] == ["global-state"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plain", "nothing"), "has no 'nothing'"),
        (("plain", "tuned", "same_inputs"), "the same for every seed"),
        (("plain", "tuned", "other_inputs"), "differ from call to call"),
        (("odd", "tuned"), "cannot be compared"),
        (("failing", "tuned"), "The baseline cannot be measured: it raised LookupError: not here"),
    ],
)
def test_what_cannot_be_used_is_told(file: str, words: tuple[str, ...], said: str) -> None:
    plain, tuned, *inputs = (f"{file}:{word}" for word in words)
    with pytest.raises(BadInputError, match=said):
        fathom.prove(plain, tuned, *inputs, **QUICK)


@pytest.mark.parametrize("where", ["", "x", "nowhere.py:f", "no.such.module:f", "json:loads()", ":f"])
def test_addresses_that_lead_nowhere(file: str, where: str) -> None:
    with pytest.raises(BadInputError):
        fathom.prove(f"{file}:plain", where, **QUICK)


@pytest.mark.parametrize("options", [{"margin": 0}, {"margin": 2}, {"latency": "x"}, {"patience_s": 0}])
def test_settings_that_mean_nothing(options: dict[str, Any]) -> None:
    with pytest.raises(BadInputError):
        Settings(**options)


def test_an_unknown_reason_cannot_be_allowed(file: str) -> None:
    with pytest.raises(BadInputError, match="nonsense"):
        fathom.prove(f"{file}:plain", f"{file}:tuned", allow=("nonsense",), **QUICK)


def test_exit_status_and_json(tmp_path: Path, file: str) -> None:
    options = ("--budget", "0", "--fresh", "fork", "--json")
    done = run_fathom("prove", f"{file}:plain", f"{file}:other", *options, cwd=tmp_path)
    answer = json.loads(done.stdout)
    assert done.returncode == 1 and answer["verdict"] == "refused" and answer["reasons"][0]["code"]
    assert {"verdict", "ratio", "interval", "reasons", "timings", "agreement"} <= answer.keys()
    done = run_fathom("prove", f"{file}:plain", "nowhere.py:f", *options, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == "" and "nowhere.py is not a file" in done.stderr


def program(folder: Path, name: str, loss: str, tokens: str = "[1, 2]", more: str = "") -> str:
    path = folder / name
    path.write_text(f"{more}\nopen('m.json', 'w').write('{{\"loss\": {loss}, \"tokens\": {tokens}}}')")
    return f"{sys.executable} -S {path}"


def prove_commands(
    baseline: str, candidate: str, settings: Settings | None = None, metrics: Path | None = None, **more: Any
) -> Verdict:
    plain, tuned = command_of(baseline), command_of(candidate)
    return prove_pair(Pair(plain=plain, tuned=tuned, metrics=metrics, **more), settings)


def test_commands_are_compared_by_what_they_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    metrics, settings = Path("m.json"), Settings(budget_s=0)
    plain = program(tmp_path, "a.py", "[3.0, 2.0]", more="import time; time.sleep(0.1)")
    quick = program(tmp_path, "b.py", "[3.0, 2.0000001]")
    verdict = prove_commands(plain, quick, settings, metrics)
    assert not verdict.refused and [result.place for result in verdict.agreement] == ["loss", "tokens"]
    worse = program(tmp_path, "c.py", "[3.0, 2.1]", "[1, 3]")
    verdict = prove_commands(plain, worse, settings, metrics)
    assert verdict.verdict == "refused"
    assert [reason.code for reason in verdict.reasons] == ["other-losses", "other-weights"]
    failing = program(tmp_path, "d.py", "[]", more="raise SystemExit(3)")
    verdict = prove_commands(plain, failing, settings, metrics)
    assert [reason.code for reason in verdict.reasons] == ["raises"]
    with pytest.raises(BadInputError, match="The baseline cannot be measured"):
        prove_commands(failing, plain, settings, metrics)


def test_a_pair_of_commands_says_how_much_its_forms_may_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    slow = program(tmp_path, "a.py", "[3.0, 2.0]", more="import time; time.sleep(0.1)").split()
    near = program(tmp_path, "b.py", "[3.0, 2.001]").split()
    pair = Pair(plain=tuple(slow), tuned=tuple(near), metrics=Path("m.json"))
    assert prove_pair(pair, Settings(budget_s=0)).verdict == "refused"
    verdict = prove_pair(dataclasses.replace(pair, agree=1e-2), Settings(budget_s=0))
    assert not verdict.refused and "within 0.01" in verdict.notes[0]
    assert prove_pair(dataclasses.replace(pair, agree=1e-5), Settings(budget_s=0)).verdict == "refused"
    for half in (
        Pair(plain=("true",), tuned="a:b", inputs="a:c"),
        Pair(plain="json:loads", tuned="json:loads"),
    ):
        with pytest.raises(BadInputError, match=r"give two of the same kind|no inputs"):
            prove_pair(half)


BAD = ["", "[]", "{", "{}", '{"loss": []}', '{"loss": "x"}', '{"loss": [1, [2]]}', None, "\0\0", "[" * 99999]


@pytest.mark.parametrize("content", BAD)
def test_bad_metrics(tmp_path: Path, content: str | None) -> None:
    for name in ("m.json", "m.npz"):
        if content is not None:
            (tmp_path / name).write_text(content)
        with pytest.raises(SideError, match=name) as error:
            read_metrics(tmp_path / name)
        assert error.value.code == "no-metrics"


def test_damaged_archives_of_metrics(tmp_path: Path) -> None:
    path, random = tmp_path / "m.npz", np.random.default_rng(0)
    np.savez_compressed(path, loss=np.arange(50.0))
    total = path.read_bytes()
    assert list(read_metrics(path)) == ["loss"]
    for _ in range(200):
        damaged = bytearray(total[: random.integers(1, len(total) + 1)])
        damaged[random.integers(len(damaged))] ^= int(random.integers(1, 256))
        path.write_bytes(damaged)
        try:
            assert all(array.dtype.kind in "biuf" for array in read_metrics(path).values())
        except SideError as error:
            assert error.code == "no-metrics"
    np.savez(path, names=np.array(["a"]))
    with pytest.raises(SideError, match="not an array of numbers"):
        read_metrics(path)
    with path.open("wb") as file:
        np.save(file, np.arange(3.0))
    with pytest.raises(SideError, match="is not npz"):
        read_metrics(path)


@pytest.mark.parametrize(
    "writes", ["pass", "open('m.json', 'w').write('{}')", "import os; os.mkfifo('m.json')"]
)
def test_a_candidate_without_metrics_is_refused_and_a_baseline_is_bad_input(
    tmp_path: Path, writes: str
) -> None:
    good = program(tmp_path, "a.py", "[3.0, 2.0]")
    (tmp_path / "b.py").write_text(writes)
    bad, options = f"{sys.executable} -S b.py", ("--metrics", "m.json", "--json", "--budget", "0")
    done = run_fathom("prove", "--command", good, bad, *options, cwd=tmp_path)
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["verdict"]) == (1, "refused"), answer
    assert [reason["code"] for reason in answer["reasons"]] == ["no-metrics"]
    done = run_fathom("prove", "--command", bad, good, *options, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "") and "The baseline cannot be measured" in done.stderr
    assert "m.json" in done.stderr and "Traceback" not in done.stderr


def test_metrics_that_cannot_be_removed_are_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot be removed"):
        prove_commands("true", "true", Settings(budget_s=0), tmp_path)


def test_commands_whose_work_nobody_compares_are_refused_before_they_run(tmp_path: Path) -> None:
    run, nothing = f"touch {tmp_path / 'ran'}", "true"
    done = run_fathom("prove", "--command", run, nothing, "--json", "--budget", "0", cwd=tmp_path)
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["verdict"], answer["ratio"]) == (1, "refused", None)
    assert [reason["code"] for reason in answer["reasons"]] == ["nothing-compared"]
    assert "--metrics" in answer["reasons"][0]["detail"] and not (tmp_path / "ran").exists()
    verdict = prove_commands(nothing, nothing, Settings(budget_s=0), allow=("nothing-compared",))
    assert verdict.reasons == [] and verdict.ratio is not None and not verdict.refused
    assert verdict.excused == [Refusal("nothing-compared")]  # without what else could be done
    assert "no results were compared" in printed(verdict)
    with pytest.raises(BadInputError, match="nothing-compared"):  # it names those that there are
        prove_commands(run, nothing, allow=("nonsense",))


@pytest.mark.parametrize("words", [("", "true"), ("'", "true"), ("no-such-program", "true")])
def test_commands_that_cannot_be_run(words: tuple[str, str]) -> None:
    with pytest.raises(BadInputError):
        prove_commands(*words, Settings(budget_s=0))


def printed(verdict: Verdict, width: int = 90) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    print_verdict(verdict, console)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def sample(**more: Any) -> Verdict:
    timing = Timing(ns=2e6, blocks=[2e6], samples=60, discarded={"preempted": 2})
    halved = msgspec.structs.replace(timing, ns=1e6, discarded={})
    cold, warm = (
        Comparison(cache, "faster", 0.5, [0.49, 0.51], 8, True, timing, halved) for cache in ("cold", "warm")
    )
    base = Verdict("inconclusive", None, None, [], 0.01, "a.py:f", "b.py:g", timings=[warm, cold])
    return msgspec.structs.replace(base, **more)


def test_the_screen_says_what_matters_first() -> None:
    pair, settings = Pair(plain="a:f", tuned="b:g", inputs="a:i"), Settings()
    text = printed(_concluded(sample(device="cuda", latency="removed"), pair, settings))
    assert text.splitlines()[0].split()[:2] == ["FASTER", "2×"]
    assert "cold L2 · launch latency removed" in text and "2.00 ms" in text and "2 dropped" in text
    refused = _concluded(sample(reasons=[Refusal("hangs", "60 s")]), pair, settings)
    text = printed(refused)
    assert "REFUSED" in text and "✗ it did not return in time (hangs)" in text
    assert max(map(len, printed(refused, 80).splitlines())) <= 80


def test_calls_that_agree_bound_the_share_of_wrong_ones() -> None:
    verdict = sample()
    verdict.agreed(299)
    assert verdict.fault_rate == pytest.approx(0.00997, abs=1e-5)  # the rule of three says 3 / 299
    assert "299 compared calls agree: fewer than 1 % of calls are wrong" in printed(verdict)
    facts = digest.proof(verdict).facts
    assert (facts["compared_calls"], facts["wrong_calls_below"]) == (299, verdict.fault_rate)
    refused = sample(reasons=[Refusal("wrong-result")])
    refused.agreed(299)
    assert (refused.compared, refused.fault_rate) == (299, None) and "agree" not in printed(refused)


def test_the_chosen_condition_of_the_cache_decides() -> None:
    pair = Pair(plain="a:f", tuned="b:g", inputs="a:i")
    verdict = sample()
    verdict.timings[0].ratio, verdict.timings[0].decision = 2.0, "slower"
    assert _concluded(verdict, pair, Settings()).verdict == "faster"
    assert _concluded(verdict, pair, Settings(cache="warm")).verdict == "slower"
