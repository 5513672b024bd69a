"""Techniques on several ranks: on processes that communicate through gloo, all in one start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fathom.lab import Technique, techniques  # noqa: E402
from fathom.referee import Pair, Settings, prove_pair  # noqa: E402
from fathom.referee.compare.decode import Saved, read  # noqa: E402
from fathom.referee.compare.tolerance import SHORT, tolerance  # noqa: E402
from fathom.referee.ranks import Torchrun  # noqa: E402
from fathom.referee.sides import SideError, SideProcess  # noqa: E402

pytestmark = [pytest.mark.programs, pytest.mark.xdist_group("lab-ranks")]
ON_RANKS = {name: t for name, t in techniques().items() if t.needs.ranks}
HERE = [t for t in ON_RANKS.values() if not t.needs.gpu]
MORE = ["overlapped-gradients", "ring-attention", "exchanged-heads", "overlapped-exchange", "zero-bubble"]

HEAD = """
import time, torch, torch.distributed as dist
def inputs(seed, device=None):
    return torch.rand(4, generator=torch.Generator().manual_seed(seed))
def plain(x):
    return lambda: (time.sleep(0.04 * dist.get_rank()), x + dist.get_rank())[1]
"""
BROKEN = f"""{HEAD}
def tuned(x):
    if dist.get_rank() == 1:
        raise ValueError("rank 1 is broken")
    return lambda: dist.barrier()
"""
WAITING = f"""{HEAD}
def tuned(x):
    return lambda: (time.sleep(0.01 * dist.get_rank()), x + dist.get_rank())[1]
def wrong(x):
    return lambda: x
"""


def spec(technique: Technique) -> dict[str, Any]:
    pair = technique.pair.addressed()
    return {name: getattr(pair, name) for name in ("plain", "tuned", "reference", "inputs")} | {
        "device": "cpu"
    }


class Ranks:
    """A group of ranks that serves many techniques, started again after a failure."""

    def __init__(self, ranks: int, scratch: Path) -> None:
        self.launcher = Torchrun(ranks, str(scratch))
        self.worker = SideProcess(spec(HERE[0]), 60.0, self.launcher)

    def ask(self, do: str, **more: Any) -> Any:
        if self.worker.process is None:
            self.worker = SideProcess(spec(HERE[0]), 60.0, self.launcher).__enter__()
        try:
            return self.worker.ask(do, **more)
        except SideError:
            self.worker.__exit__()
            raise


def started(ranks: int, paths: pytest.TempPathFactory) -> Iterator[Ranks]:
    group = Ranks(ranks, paths.mktemp("ranks"))
    yield group
    group.worker.__exit__()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    yield from started(2, tmp_path_factory)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    yield from started(4, tmp_path_factory)


def result(worker: Ranks, form: str, folder: Path, wide: bool = False) -> Saved:
    path = folder / form
    parts = worker.ask("save", form=form, seed=7, path=str(path), wide=wide)
    leaves = []
    for rank, forms in enumerate(parts):
        answer = {"leaves": forms, "mutated": [], "aliases": [], "inputs": ""}
        leaves += read(answer, Path(f"{path}.{rank}")).leaves
    return Saved(leaves, [], [], "")


def check(technique: Technique, worker: Ranks, folder: Path) -> None:
    """Compare all ranks' results of both forms with the reference in double precision."""
    places = spec(technique)
    worker.ask("load", spec=places)
    longest = worker.ask("about")["longest"]
    exact = result(worker, "reference" if places["reference"] else "plain", folder, wide=True)
    assert any(leaf.numbers().any() for leaf in exact.leaves)
    for form, claim in (("plain", ""), ("tuned", technique.header.proof.precision or "")):
        own = result(worker, form, folder)
        assert [leaf.place for leaf in own.leaves] == [leaf.place for leaf in exact.leaves]
        for mine, ref in zip(own.leaves, exact.leaves, strict=True):
            allowed = tolerance(SHORT.get(claim, mine.dtype), longest, mine.elements)
            assert allowed is not None and mine.form["shape"] == ref.form["shape"]
            error = np.linalg.norm(mine.numbers() - ref.numbers()) / np.linalg.norm(ref.numbers())
            assert error <= allowed.norm, (form, mine.place)


@pytest.mark.parametrize("technique", HERE, ids=[t.name for t in HERE])
def test_both_forms_compute_the_reference_on_two_ranks(
    technique: Technique, two: Ranks, tmp_path: Path
) -> None:
    check(technique, two, tmp_path)


@pytest.mark.parametrize("name", MORE)
def test_both_forms_compute_the_reference_on_four_ranks(name: str, four: Ranks, tmp_path: Path) -> None:
    check(ON_RANKS[name], four, tmp_path)


@pytest.mark.parametrize("name", [t.name for t in HERE if t.header.gains == "memory"])
def test_a_technique_for_memory_uses_less_of_it(name: str, four: Ranks) -> None:
    four.ask("load", spec=spec(ON_RANKS[name]))
    plain, tuned = (max(four.ask("peak", form=form, seed=1)) for form in ("plain", "tuned"))
    assert tuned < 0.85 * plain


def test_a_form_that_fails_on_one_rank_ends_the_group(two: Ranks, tmp_path: Path) -> None:
    program = tmp_path / "broken.py"
    program.write_text(BROKEN)
    places = {name: f"{program}:{name}" for name in ("inputs", "plain", "tuned")}
    two.ask("load", spec=places)
    two.ask("prepare", form="plain", seed=1)
    with pytest.raises(SideError, match="rank 1 is broken"):
        two.ask("prepare", form="tuned", seed=1)


def test_the_referee_proves_a_pair_on_ranks(tmp_path: Path) -> None:
    program = tmp_path / "waiting.py"
    program.write_text(WAITING)
    places = {name: f"{program}:{name}" for name in ("inputs", "plain", "tuned")}
    verdict = prove_pair(Pair(**places, ranks=2), Settings(budget_s=1.0, patience_s=60.0))
    assert verdict.verdict == "faster" and verdict.notes[0].startswith("The ranks are processes on this CPU")
    assert verdict.ratio is not None and 0.2 < verdict.ratio < 0.8  # rank 1 waits 40 ms or 10 ms
    assert {row.place for row in verdict.agreement} == {"rank 0", "rank 1"}
    wrong = prove_pair(Pair(**places | {"tuned": f"{program}:wrong"}, ranks=2), Settings(budget_s=1.0))
    assert wrong.refused and wrong.reasons[0].detail.startswith("rank 1")
