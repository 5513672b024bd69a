"""One rank of a proof on several ranks: prepare both forms, time their steps, save their results.

torchrun starts `python -m fathom.referee.child.rank SPEC` for each rank. All ranks inherit its standard
input and output, which are the pipes of the parent: rank 0 reads requests and answers them, and a rank that
fails reports it.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from fathom.referee.address import load
from fathom.referee.child.guards import now, seed_everything
from fathom.referee.child.serving import describe_error, end_with_parent
from fathom.referee.child.values import Call, arguments, described, leaves, upcast, view
from fathom.referee.protocol import Form, Spec

FORMS = ("plain", "tuned", "reference")
ASKED = ("load", "about", "prepare", "go", "save", "peak")
STEPS = 2  # before results are saved, so that state from the first step is part of what is compared


class Rank:
    """The forms of a pair in this process. A form takes the inputs and returns the step that is timed."""

    def __init__(self, spec: Spec) -> None:
        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        ranks, local = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
        self.device = "cuda" if spec["device"] == "cuda" else "cpu"
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks) if self.device == "cpu" else 1)
        if self.device == "cuda":
            torch.cuda.set_device(local)
            dist.init_process_group("cpu:gloo,cuda:nccl", device_id=torch.device("cuda", local))
        else:
            dist.init_process_group("gloo")
        self.control = dist.new_group(backend="gloo")
        self.rank = dist.get_rank()
        self.load(spec)

    def load(self, spec: Spec) -> None:
        """Take up the pair of `spec`: the addresses of `inputs`, `plain`, `tuned` and `reference`."""
        self.inputs = load(spec["inputs"])
        places = (spec["plain"], spec["tuned"], spec.get("reference"))
        named = zip(FORMS, places, strict=True)
        self.forms: dict[str, Callable[..., Any]] = {name: load(place) for name, place in named if place}
        self.steps: dict[str, Callable[[], Any]] = {}

    def about(self) -> dict[str, object]:
        """Return the device, the backend, and the sizes of the inputs."""
        every = [leaf for _, leaf in leaves(self._drawn(1)) if hasattr(leaf, "shape")]
        longest = max((extent for leaf in every for extent in leaf.shape), default=1)
        largest = max((leaf.numel() for leaf in every), default=1)
        backend = "nccl" if self.device == "cuda" else "gloo"
        return {"device": self.device, "backend": backend, "longest": longest, "largest": largest}

    def prepare(self, form: str, seed: int) -> float:
        """Build the step of a form and warm it up; return the ns of one step."""
        self.steps.pop(form, None)
        gc.collect()
        self.steps[form] = self._built(form, seed)
        for _ in range(3):
            ns = self.go(form, 1)
        return ns

    def go(self, form: str, calls: int) -> float:
        """Return the ns of a step on the slowest rank, over `calls` steps that all ranks begin together."""
        step = self.steps[form]
        gc.disable()
        self._settle()
        self.dist.barrier(self.control)
        began = now()
        for _ in range(calls):
            step()
        self._settle()
        spent = self.torch.tensor((now() - began) / calls, dtype=self.torch.float64)
        gc.enable()
        self.dist.all_reduce(spent, self.dist.ReduceOp.MAX, self.control)
        return float(spent)

    def save(self, form: str, seed: int, path: str, wide: bool = False) -> list[list[Form]]:
        """Write what the last of STEPS steps returns on each rank, and return its parts rank by rank."""
        step = self._built(form, seed, wide)
        for _ in range(STEPS):
            result = step()
        self._settle()
        forms, offset = [], 0
        with Path(f"{path}.{self.rank}").open("wb") as file:
            for place, leaf in leaves(result):
                written = file.write(view(leaf))
                place = place.replace("result", f"rank {self.rank}", 1)
                forms.append({"place": place, **described(leaf), "offset": offset, "bytes": written})
                offset += written
        return self._of_all(forms)

    def peak(self, form: str, seed: int) -> list[int]:
        """Return the most bytes that building a form and STEPS steps hold at a time, on each rank."""
        self._drawn(seed)
        with _Allocations(self.torch, self.device) as taken:
            step = self._built(form, seed)
            for _ in range(STEPS):
                step()
            self._settle()
        return self._of_all(taken.peak())

    def _built(self, form: str, seed: int, wide: bool = False) -> Callable[[], Any]:
        args, kwargs = self._drawn(seed, wide)
        return self.forms[form](*args, **kwargs)

    def _drawn(self, seed: int, wide: bool = False) -> Call:
        seed_everything(seed)  # equal on all ranks
        call = arguments(self.inputs(seed, self.device))
        return upcast(call) if wide else call

    def _settle(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def _of_all(self, value: Any) -> list[Any]:
        every = [None] * self.dist.get_world_size()
        self.dist.all_gather_object(every, value, self.control)
        return every

    def next_request(self, ask: IO[str]) -> str:
        """Return the next line of rank 0's `ask` on all ranks; "" at its end."""
        line = [ask.readline() if self.rank == 0 else ""]
        self.dist.broadcast_object_list(line, 0, self.control)
        return line[0]


class _Allocations:
    """The bytes that a device holds at most, beyond those at the start."""

    def __init__(self, torch: Any, device: str) -> None:
        self.torch, self.on_gpu = torch, device == "cuda"

    def __enter__(self) -> _Allocations:
        if self.on_gpu:
            self.torch.cuda.reset_peak_memory_stats()
            self.before = self.torch.cuda.memory_allocated()
        else:
            activities = [self.torch.profiler.ProfilerActivity.CPU]
            self.profile = self.torch.profiler.profile(activities=activities, profile_memory=True).__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if not self.on_gpu:
            self.profile.__exit__(*error)

    def peak(self) -> int:
        if self.on_gpu:
            return int(self.torch.cuda.max_memory_allocated() - self.before)
        events = self.profile.profiler.kineto_results.events()
        moves = sorted((e for e in events if e.name() == "[memory]"), key=lambda event: event.start_ns())
        now_used = most = 0
        for move in moves:
            now_used += move.nbytes()
            most = max(most, now_used)
        return most


def main() -> None:
    """Serve requests until the parent closes its pipe."""
    end_with_parent()
    spec = json.loads(sys.argv[1])
    del sys.argv[1:]
    with os.fdopen(os.dup(0)) as ask, os.fdopen(os.dup(1), "w") as answer:
        os.dup2(2, 1)  # output of the forms is not an answer
        try:
            _serve(Rank(spec), ask, answer)
        except BaseException as error:
            answer.write(json.dumps({"error": describe_error(error)}) + "\n")
            answer.flush()
            os._exit(1)  # because the other ranks may wait for this one; torchrun ends them


def _serve(rank: Rank, ask: IO[str], answer: IO[str]) -> None:
    result: Any = None
    while True:
        if rank.rank == 0:
            answer.write(json.dumps({"ok": result}) + "\n")
            answer.flush()
        line = rank.next_request(ask)
        if not line:
            break
        request = json.loads(line)
        what = request.pop("do")
        result = getattr(rank, what if what in ASKED else "unknown")(**request)
    rank.dist.destroy_process_group()


if __name__ == "__main__":
    main()
