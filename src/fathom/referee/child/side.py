"""One side of a proof, inside its process: prepare inputs, time calls, save results."""

from __future__ import annotations

import gc
import importlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from fathom.referee.address import load
from fathom.referee.child import guards, inspection
from fathom.referee.child.inspection import aliases
from fathom.referee.child.values import (
    Call,
    arguments,
    copied,
    described,
    digest,
    equal,
    is_tensor,
    kind,
    leaves,
    refilled,
    torch,
    upcast,
    view,
)
from fathom.referee.protocol import Form, SampleTimes, SavedResult, Spec, WorkRecord


class Side:
    """The target of `spec`, with its inputs, clocks and latest results."""

    def __init__(self, spec: Spec) -> None:
        for name in spec.get("preload", ()):
            importlib.import_module(name)
        self.functions = guards.functions()
        self._inputs = load(spec["inputs"])
        self._variants = load(place) if (place := spec.get("variants")) else None
        self._work = load(place) if (place := spec.get("work")) else None
        self._inputs_code = getattr(self._inputs, "__code__", None)
        self.peeking = inspection.Peeking(spec["target"].rpartition(":")[0])
        self._upcast = bool(spec.get("upcast"))
        self.bench = self._bench()  # before the target is imported, so that the clocks are unmodified
        self.settings = guards.settings()
        wanted = {"inputs": key} if (key := inspection.code_key(self._inputs)) else {}
        with inspection.RecordedCalls(wanted, None) as calls:
            self.target = load(spec["target"])
        self.setup_calls = sorted(calls.seen)
        self.key = inspection.code_key(self.target)
        self.wanted = spec.get("wanted") or {}
        self.slots: list[Call] = []
        self.fresh_values: list[Call] = []
        self.results: list[Any] = []
        self._held: tuple[Snapshot, int, str | None]
        gc.freeze()  # so that the collection before each sample skips the libraries' objects

    def _bench(self) -> Any:
        call = self.fresh(1)
        if any(is_tensor(leaf) and leaf.is_cuda for _, leaf in leaves(call)):
            from fathom.referee.child.cuda import Cuda

            return Cuda()
        from fathom.referee.child.processor import Processor

        return Processor()

    def about(self) -> dict[str, object]:
        """Return the facts about this side that the parent needs (see `inspecting.About`)."""
        call = self.fresh(1)
        dtypes = (str(leaf.dtype) for _, leaf in leaves(call) if hasattr(leaf, "dtype"))
        dtype = next((name for name in dtypes if "float" in name), "float32").removeprefix("torch.")
        every = [leaf for _, leaf in leaves(call) if hasattr(leaf, "shape")]
        forms = [tuple(leaf.shape) for leaf in every]
        return {
            "device": self.bench.device,
            "input_bytes": sum(int(getattr(leaf, "nbytes", 0)) for leaf in every),
            "longest": max((extent for form in forms for extent in form), default=1),
            "largest": max((prod(form) for form in forms), default=1),
            "dtype": dtype,
            "variants": sorted(self._variants(1)) if self._variants else [],
            "repeatable": digest(call) == digest(self.fresh(1)),
            "varied": digest(call) != digest(self.fresh(2)) or not every,
        }

    def fresh(self, seed: int, variant: str | None = None) -> Call:
        """Make the inputs for a seed."""
        guards.seed_everything(seed)
        if variant is not None and self._variants is not None:
            return arguments(self._variants(seed)[variant])
        return arguments(self._inputs(seed))

    def work(self) -> WorkRecord:
        """Return the work of one call, declared or derived; {} if neither is possible."""
        call = self.fresh(1)
        work = _declared(self._work, call) if self._work else _derived(self.target, call)
        gc.freeze()  # torch's counter imports modules, whose objects would slow every later collection
        return work

    def place(self, seeds: list[int], variant: str | None = None, elsewhere: bool = False) -> None:
        """Put fresh inputs where earlier ones were, a slot per call; with `elsewhere`, into other memory."""
        if elsewhere:
            largest = max((int(getattr(leaf, "nbytes", 0)) for _, leaf in leaves(self.slots)), default=0)
            self.slots, self.fresh_values, self.results = [], [], []
            self.bench.move(largest)
        made = [self.fresh(seed, variant) for seed in seeds]
        self.fresh_values = upcast(made) if self._upcast else made
        old = self.slots + [((), {})] * (len(made) - len(self.slots))
        self.slots = [refilled(a, b) for a, b in zip(old, self.fresh_values, strict=False)]
        self.bench.settle()
        gc.collect()

    def go(
        self, *, cold: bool = False, latency: str = "removed", check: bool = False, repeat: int = 1
    ) -> SampleTimes:
        """Take one sample over all placed calls, `repeat` times, and keep the latest results.

        `check`: read the last result twice, to detect work that continues after the call.
        """
        self.results = []
        sample, self.results = self.bench.run(
            self.target, self.slots, repeat=repeat, cold=cold, latency=latency, refresh=self._refresh
        )
        return {**sample, "late": self.bench.late(self.results[-1]) if check else None}

    def _refresh(self) -> None:
        for slot, values in zip(self.slots, self.fresh_values, strict=False):
            if slot is not values:
                refilled(slot, values)

    def hold(self, index: int, seed: int, variant: str | None = None) -> None:
        """Copy the result of that call of the latest sample, so that later calls cannot change it."""
        self.bench.settle()
        self._held = snapshot(self.results[index], self.slots[index], seed), seed, variant

    def save(
        self, path: str, index: int | None = None, seed: int = 0, variant: str | None = None
    ) -> SavedResult:
        """Write the held result and inputs to `path`; with `index`, those of that call instead."""
        if index is None:
            current, seed, variant = self._held
        self.bench.settle()
        original = self.fresh(seed, variant)
        inputs = digest(original)
        original = upcast([original])[0] if self._upcast else original
        if index is not None:
            current = snapshot(self.results[index], self.slots[index], seed, lambda leaf: leaf)
        answer: SavedResult = {"inputs": inputs, **save(current, original, Path(path))}
        if index is not None:
            self.results, self.fresh_values = [], []
        del current, original
        self.bench.release()
        return answer

    def fingerprint(self) -> str | None:
        """Return a hash of everything that `save` would write; None if a value has no bytes."""
        current, seed, variant = self._held
        self.bench.settle()
        original = self.fresh(seed, variant)
        return fingerprint(current, upcast([original])[0] if self._upcast else original)

    def unchanged_inputs(self) -> bool:
        """Return whether the code of the function that makes the inputs is unchanged."""
        return getattr(self._inputs, "__code__", None) is self._inputs_code


def _declared(function: Any, call: Any) -> WorkRecord:
    """Return the work that the pair's `work` function declares for these inputs."""
    amounts = dict(function(*call[0], **call[1]))
    return {
        "flops": amounts.get("flops"),
        "bytes": amounts.get("bytes"),
        "unit": amounts.get("unit"),
        "source": "given",
    }


def _derived(target: Any, call: Any) -> WorkRecord:
    """Return FLOPs by torch's counter, and the bytes of inputs and results, each once; {} without torch."""
    lib = torch()
    if lib is None:
        return {}
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        result = target(*call[0], **call[1])
    tensors = [leaf for _, leaf in (*leaves(call), *leaves(result)) if is_tensor(leaf)]
    moved = {leaf.data_ptr(): leaf.nbytes for leaf in tensors}
    if not moved:
        return {}
    flops = counter.get_total_flops() or None
    return {"flops": flops, "bytes": sum(moved.values()), "unit": None, "source": "derived"}


# Results as raw bytes with a description, for comparison in another process
Named = tuple[str, Any]
GRADIENT = "gradient of"  # prefix of the places of gradients that are computed after the call


@dataclass(frozen=True)
class Snapshot:
    """The result of a call: (description, value or copy) pairs, and aliases of inputs."""

    result: list[tuple[Form, Any]]
    inputs: list[tuple[Form, Any]]  # after the call
    gradients: list[tuple[Form, Any]]
    aliases: list[str]


def snapshot(result: Any, call: Any, seed: int, copy: Callable[[Any], Any] = copied) -> Snapshot:
    """Return everything that a comparison needs: result, inputs and gradients, copied by default."""
    inputs = [(place, leaf) for place, leaf in leaves(call, "inputs") if kind(leaf) in ("tensor", "array")]
    pairs = [f"{first} and {other}" for first, other in aliases(result, call)]
    gradients = _gradients(result, call, seed)
    kept = [_kept(named, copy) for named in (leaves(result), inputs, gradients)]
    return Snapshot(kept[0], kept[1], kept[2], pairs)


def _kept(named: Iterable[Named], copy: Callable[[Any], Any]) -> list[tuple[Form, Any]]:
    return [({"place": place, **described(leaf)}, copy(leaf)) for place, leaf in named]


def save(taken: Snapshot, original: Any, path: Path) -> SavedResult:
    """Write the bytes to `path`, and return their description, without the inputs' hash.

    Changed inputs and gradients are leaves as well.
    """
    changed = _changed(taken, original)
    forms: list[Form] = []
    offset = 0
    with path.open("wb") as file:
        for form, leaf in (*taken.result, *changed, *taken.gradients):
            written = 0 if form["kind"] == "object" else file.write(view(leaf))
            forms.append({**form, "offset": offset, "bytes": written})
            offset += written
    return {"leaves": forms, "mutated": _places(changed), "aliases": taken.aliases}


def fingerprint(taken: Snapshot, original: Any) -> str | None:
    """Return a hash of what `save` returns and writes, and of the inputs; None if a value has no bytes."""
    changed = _changed(taken, original)
    named = [*taken.result, *changed, *taken.gradients]
    forms = [form for form, _ in named]
    if any(form["kind"] == "object" for form in forms):
        return None
    hashes = digest(original), digest([leaf for _, leaf in named])
    return json.dumps([forms, _places(changed), taken.aliases, *hashes])


def _changed(taken: Snapshot, original: Any) -> list[tuple[Form, Any]]:
    before = dict(leaves(original, "inputs"))
    same = (form["place"] in before and equal(leaf, before[form["place"]]) for form, leaf in taken.inputs)
    return [pair for pair, unchanged in zip(taken.inputs, same, strict=True) if not unchanged]


def _places(named: list[tuple[Form, Any]]) -> list[str]:
    return [form["place"] for form, _ in named]


def _gradients(result: Any, call: Any, seed: int) -> Iterator[Named]:
    """Yield gradients of the timed result, weighted by random signs, which every dtype holds exactly."""
    lib = torch()
    inputs = [(p, x) for p, x in leaves(call, "inputs") if is_tensor(x) and x.requires_grad and x.is_leaf]
    for place, leaf in inputs:
        if leaf.grad is not None:
            yield f"{place}.grad", leaf.grad
    outputs = [x for _, x in leaves(result) if is_tensor(x) and x.requires_grad]
    if not inputs or not outputs:
        return
    signs = [_signs(lib, out, seed + number) for number, out in enumerate(outputs)]
    gradients = lib.autograd.grad(outputs, [x for _, x in inputs], signs, allow_unused=True)
    for (place, leaf), gradient in zip(inputs, gradients, strict=True):
        yield f"{GRADIENT} {place}", lib.zeros_like(leaf) if gradient is None else gradient


def _signs(lib: Any, output: Any, seed: int) -> Any:
    source = lib.Generator().manual_seed(seed)
    bits = lib.randint(0, 2, tuple(output.shape), generator=source) * 2 - 1
    return bits.to(device=output.device, dtype=output.dtype)
