"""Proofs of pairs that run on several ranks, started by torchrun.

A form takes the inputs, which are equal on all ranks, and returns a step. Steps are timed from a barrier to
the end of the slowest rank. Both forms live in the same processes and take turns, A B B A; every ROUNDS
rounds the processes are started again with other inputs. Results of all ranks are compared before the timing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import IO

from fathom.referee.blocks import Block, Seeds
from fathom.referee.compare.decode import Saved, read_leaves
from fathom.referee.compare.judge import Judge
from fathom.referee.compare.tolerance import declared
from fathom.referee.launching import Spawned, Started
from fathom.referee.pair import Pair, Settings, place_of
from fathom.referee.protocol import Spec
from fathom.referee.race import comparisons, conclude, race
from fathom.referee.sides import BASELINE, SideError, SideProcess, blaming_baseline
from fathom.referee.verdict import Refusal, Verdict
from fathom.timing import Clock
from fathom.units import NS_PER_MS, NS_PER_S

ROUNDS = 3  # between two starts of the processes
SAMPLES, SAMPLE_NS = 5, 50 * NS_PER_MS  # of a block; least duration of a sample
MOST_CALLS = 200
SEEDS = 2  # inputs for which results are compared
GLOO = "The ranks are processes on this CPU, connected by gloo; the ratio does not carry over to GPUs."
# Some virtual machines refuse NVLink multicast, and the libraries then fail instead of doing without it.
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
ROOM = "fathom.referee.child.rank"


@dataclass(frozen=True)
class Torchrun:
    """Starts ranks on this host."""

    ranks: int
    scratch: str | None = None  # where ranks put temporary files, because they are killed at the end

    def start(self, spec: Spec, ask: int, answer: int, errors: IO[str]) -> Started:
        """Start torchrun, whose ranks inherit its standard streams."""
        torchrun = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={self.ranks}",
        ]
        given = NO_MULTICAST | {"OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}
        own = {"TMPDIR": self.scratch} if self.scratch else {}
        process = subprocess.Popen(
            [*torchrun, "-m", ROOM, json.dumps(spec)],
            stdin=ask,
            stdout=answer,
            stderr=errors,
            start_new_session=True,
            env=given | os.environ | own,
        )
        return Spawned(process)


def prove_on_ranks(pair: Pair, settings: Settings, device: str, clock: Clock | None = None) -> Verdict:
    """Prove a pair on `pair.ranks` ranks. Raises BadInputError if its plain form cannot be used."""
    pair, clock = pair.addressed(), clock or settings.turn
    began, seeds = clock.now_ns(), settings.seeds()
    verdict = Verdict(
        "inconclusive", None, None, [], settings.margin, str(pair.plain), str(pair.tuned), device
    )
    verdict.reference = "the reference" if pair.reference else "the baseline in double precision"
    verdict.notes = [GLOO] if device == "cpu" else []
    with RankGroup(pair, settings, device) as group:
        settings.progress(f"comparing results of {pair.ranks} ranks")
        judge = _compared(group, pair, settings, seeds, verdict)
        if not any(reason.code not in pair.allow for reason in verdict.reasons):
            run = race(RankSampler(group, settings), settings, seeds, lambda *_: [], settings.turn)
            settings.keep(run)
            verdict.reasons += run.reasons
            verdict.timings = comparisons(run, settings.margin)
    verdict.agreement = list(judge.agreement.values())
    verdict.seconds = (clock.now_ns() - began) / NS_PER_S
    if verdict.timings:
        conclude(verdict, verdict.timings[0])
    verdict.excuse(pair.allow)
    verdict.agreed(judge.calls)
    return verdict


def _compared(
    group: RankGroup, pair: Pair, settings: Settings, seeds: Iterator[int], verdict: Verdict
) -> Judge:
    with blaming_baseline():
        about = group.worker.ask("about")
        judge = Judge(
            declared(pair.precision),
            pair.reduction,
            about["longest"],
            about["largest"],
            turn=settings.turn,
        )
        seeds_compared = [next(seeds) for _ in range(SEEDS)]
        known = [(group.result("plain", seed), group.exact(seed)) for seed in seeds_compared]
    for seed, (theirs, exact) in zip(seeds_compared, known, strict=True):
        try:
            verdict.reasons += judge.judge(group.result("tuned", seed), theirs, exact)
        except SideError as error:
            verdict.reasons.append(Refusal(error.code, str(error)))
            break
    return judge


class RankGroup:
    """Context manager with the running ranks of a pair."""

    def __init__(self, pair: Pair, settings: Settings, device: str) -> None:
        self._pair, self._settings = pair, settings
        self._spec: Spec = {
            "device": device,
            "plain": str(pair.plain),
            "tuned": str(pair.tuned),
            "reference": place_of(pair.reference),
            "inputs": str(pair.inputs),
        }
        self._folder = tempfile.TemporaryDirectory(prefix="fathom-")

    def __enter__(self) -> RankGroup:
        self._start()
        return self

    def _start(self) -> None:
        settings, launcher = self._settings, Torchrun(self._pair.ranks, self._folder.name)
        self.worker = SideProcess(self._spec, settings.patience_s, launcher, settings.turn).__enter__()

    def restart(self) -> None:
        """End the processes and start others."""
        self.worker.__exit__()
        self._start()

    def exact(self, seed: int) -> Saved:
        """Return the reference's result, or the plain form's, from inputs in double precision."""
        return self.result("reference" if self._pair.reference else "plain", seed, wide=True)

    def result(self, form: str, seed: int, *, wide: bool = False) -> Saved:
        """Return the result of a form on all ranks."""
        path = Path(self._folder.name) / form
        parts = enumerate(self.worker.ask("save", form=form, seed=seed, path=str(path), wide=wide))
        leaves = [leaf for rank, forms in parts for leaf in read_leaves(forms, Path(f"{path}.{rank}"))]
        return Saved(leaves, [], [], str(seed))

    def __exit__(self, *_: object) -> None:
        self.worker.__exit__()
        self._folder.cleanup()


@dataclass
class RankSampler:
    """Times both forms in a group of ranks, which it starts again every ROUNDS rounds."""

    group: RankGroup
    settings: Settings
    calls: int = 0
    blocks: dict[str, int] = field(default_factory=dict)

    def block(self, side: str, seeds: Seeds, chosen: float, known: Saved | None = None) -> Block:
        """Take a block. Raises SideError."""
        form = "plain" if side == BASELINE else "tuned"
        worker, taken = self.group.worker, sum(self.blocks.values())
        if taken % (2 * ROUNDS) == 0:
            if taken:
                self.group.restart()
                worker = self.group.worker
            first = max(worker.ask("prepare", form=each, seed=seeds("inputs")) for each in ("plain", "tuned"))
            self.calls = self.calls or max(1, min(MOST_CALLS, ceil(SAMPLE_NS / first)))
        self.blocks[side] = self.blocks.get(side, 0) + 1
        with self.settings.turn.exclusive():
            worker.ask("go", form=form, calls=1)
            samples = [worker.ask("go", form=form, calls=self.calls) for _ in range(SAMPLES)]
        return Block({"": samples})
