"""Every adversarial candidate is refused, for the reason that its header names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fathom.referee.bare import behaves_differently
from fathom.referee.blocks import ProcessSampler, Seeds
from fathom.referee.inspecting import Baseline, inspect
from fathom.referee.launching import Fork
from fathom.referee.pair import Pair, Settings
from fathom.referee.sides import CANDIDATE, SideError, Sides
from fathom.referee.verdict import Refusal, codes, ordered
from tests.support.paths import CHEATS

pytestmark = pytest.mark.programs

NAMES = sorted(path.stem for path in CHEATS.glob("[!_]*.py") if not path.stem.startswith(("honest", "gpu_")))
# Those in torch share a process that has imported it.
TORCH = (pytest.mark.programs, pytest.mark.xdist_group("referee-torch"))
SETTINGS = Settings(block_s=0.01, seed=7)
Judges = dict[str, tuple[Fork, Baseline]]


def marked(name: str) -> Any:
    return pytest.param(name, marks=TORCH) if "torch" in name else name


def header(path: Path, name: str) -> str:
    match = re.search(rf"^# {name}: (\S+)$", path.read_text(), re.M)
    assert match is not None, f"{path} does not say what it is {name}"
    return match[1]


def pair(against: str, cheat: str) -> Pair:
    honest = CHEATS / f"{against}.py"
    variants = f"{honest}:variants" if "def variants" in honest.read_text() else None
    return Pair(
        plain=f"{honest}:baseline",
        tuned=f"{CHEATS / cheat}.py:{'baseline' if cheat.startswith('honest') else 'candidate'}",
        inputs=f"{honest}:inputs",
        variants=variants,
    ).addressed()


@pytest.fixture(scope="module")
def baselines() -> Iterator[Judges]:
    """The honest sides, each started once, when first asked for."""
    with ExitStack() as stack:
        yield _Baselines(stack)


class _Baselines(Judges):
    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack

    def __missing__(self, against: str) -> tuple[Fork, Baseline]:
        modules = ["torch"] if "torch" in against else []
        fork = self.stack.enter_context(Fork(modules))
        sides = self.stack.enter_context(Sides(pair(against, against), 60, fork))
        self[against] = fork, self.stack.enter_context(Baseline(sides, SETTINGS.seeds()))
        return self[against]


def reasons(cheat: str, against: str, baselines: Judges, patience_s: float) -> list[Refusal]:
    """As a proof goes: the first look, then unwatched, then one block."""
    fork, baseline = baselines[against]
    seeds = SETTINGS.seeds()
    with Sides(pair(against, cheat), patience_s, fork) as sides:
        sides.key = baseline.process.key
        judge = baseline.judge()
        result = inspect(sides, baseline, judge, seeds).reasons
        result = result or behaves_differently(sides, baseline, judge, next(seeds))
        if not result:
            sampler = ProcessSampler(sides, SETTINGS, "cpu", baseline.about.input_bytes)
            try:
                result = sampler.block(CANDIDATE, Seeds(3), 0.5).reasons
            except SideError as error:
                result = [Refusal(error.code, str(error))]
    return ordered(result)


@pytest.mark.parametrize("cheat", [marked(name) for name in NAMES])
def test_it_is_refused_for_the_right_reason(cheat: str, baselines: Judges) -> None:
    path = CHEATS / f"{cheat}.py"
    if cheat.startswith("torch_"):
        pytest.importorskip("torch")
    expected, against = header(path, "refused"), header(path, "against")
    result = reasons(cheat, against, baselines, 2.0 if expected == "hangs" else 60.0)
    assert [reason.code for reason in result][:1] == [expected], result


@pytest.mark.parametrize("against", ["honest", marked("honest_torch")])
def test_an_honest_candidate_is_not(against: str, baselines: Judges) -> None:
    if against.endswith("torch"):
        pytest.importorskip("torch")
    fork, baseline = baselines[against]
    with Sides(pair(against, against), 60, fork) as sides:
        sides.key = baseline.process.key
        assert inspect(sides, baseline, baseline.judge(), SETTINGS.seeds()).reasons == []


WRONG_ONCE = """
import numpy as np
calls = []
def candidate(a, b):
    calls.append(1)
    result = np.maximum(a @ b, 0) + a
    result[3] += 10 * (len(calls) == 20)
    return result
"""


@pytest.mark.parametrize(("more_s", "compared"), [(600.0, 20), (0.0, 3)])
def test_a_rare_wrong_result_is_refused_if_there_is_time_to_compare_it(
    tmp_path: Path, baselines: Judges, more_s: float, compared: int
) -> None:
    path = tmp_path / "once.py"
    path.write_text(WRONG_ONCE)
    fork, baseline = baselines["honest"]
    chosen = replace(pair("honest", "honest"), tuned=f"{path}:candidate", variants=None)
    with Sides(chosen, 60, fork) as sides:
        sides.key = baseline.process.key
        judge = baseline.judge()
        result = inspect(sides, baseline, judge, SETTINGS.seeds(), more_s).reasons
    wrong = [reason for reason in result if "the 19 calls before it agreed" in reason.detail]
    assert len(wrong) == (compared == 20) and judge.agreement["result"].calls >= compared


CANCELLING = """
import numpy as np
def inputs(seed):
    return tuple(np.random.default_rng(seed).standard_normal((2, 1000), np.float32))
def baseline(x, y):
    return np.sum(x * y, keepdims=True)
def candidate(x, y):
    return np.cumsum(x * y)[-1:]  # the same sum in another order, which is near zero for some inputs
def lower(x, y):
    return np.sum((x * y).astype(np.float16), keepdims=True, dtype=np.float32)
"""


@pytest.mark.parametrize(("name", "is_right"), [("candidate", True), ("lower", False)])
def test_many_calls_refuse_no_candidate_for_an_ill_conditioned_one(
    tmp_path: Path, name: str, is_right: bool
) -> None:
    path = tmp_path / "sums.py"
    path.write_text(CANCELLING)
    chosen = Pair(plain=f"{path}:baseline", tuned=f"{path}:{name}", inputs=f"{path}:inputs").addressed()
    with Fork([]) as fork, Sides(chosen, 60, fork) as sides, Baseline(sides, SETTINGS.seeds()) as baseline:
        judge = baseline.judge()
        result = inspect(sides, baseline, judge, SETTINGS.seeds(), 600.0).reasons
    assert (result == []) == is_right
    assert judge.calls == 300 or not is_right
    assert not is_right or judge.agreement["result"].relative_norm > 7.8e-6  # the tolerance of a single call


def test_there_are_enough_of_them_and_each_names_a_known_reason() -> None:
    every = [path for path in CHEATS.glob("[!_]*.py") if not path.stem.startswith("honest")]
    assert len(NAMES) >= 25
    assert {header(path, "refused") for path in every} <= codes().keys()
