"""Results as raw bytes with a description, for comparison in another process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fathom.referee.child.inspection import aliases
from fathom.referee.child.values import copied, described, digest, equal, is_tensor, kind, leaves, torch, view

Named = tuple[str, Any]
GRADIENT = "gradient of"  # prefix of the places of gradients that are computed after the call


@dataclass(frozen=True)
class Snapshot:
    """The result of a call: (description, value or copy) pairs, and aliases of inputs."""

    result: list[tuple[dict[str, Any], Any]]
    inputs: list[tuple[dict[str, Any], Any]]  # after the call
    gradients: list[tuple[dict[str, Any], Any]]
    aliases: list[str]


def snapshot(result: Any, call: Any, seed: int, copy: Callable[[Any], Any] = copied) -> Snapshot:
    """Return everything that a comparison needs: result, inputs and gradients, copied by default."""
    inputs = [(place, leaf) for place, leaf in leaves(call, "inputs") if kind(leaf) in ("tensor", "array")]
    pairs = [f"{first} and {other}" for first, other in aliases(result, call)]
    gradients = _gradients(result, call, seed)
    kept = [
        [({"place": place, **described(leaf)}, copy(leaf)) for place, leaf in named]
        for named in (leaves(result), inputs, gradients)
    ]
    return Snapshot(kept[0], kept[1], kept[2], pairs)


def save(taken: Snapshot, original: Any, path: Path) -> dict[str, Any]:
    """Write the bytes to `path`. Returns `{"leaves", "mutated", "aliases"}`; each leaf has its offset in
    the file.

    Changed inputs and gradients are leaves as well.
    """
    changed = _changed(taken, original)
    forms, offset = [], 0
    with path.open("wb") as file:
        for form, leaf in (*taken.result, *changed, *taken.gradients):
            written = 0 if form["kind"] == "object" else file.write(view(leaf))
            forms.append({**form, "offset": offset, "bytes": written})
            offset += written
    return {"leaves": forms, "mutated": _places(changed), "aliases": taken.aliases}


def fingerprint(taken: Snapshot, original: Any) -> str | None:
    """Return a hash of everything that `save` returns and writes, and of the inputs; None if a value has
    no bytes.
    """
    changed = _changed(taken, original)
    named = [*taken.result, *changed, *taken.gradients]
    forms = [form for form, _ in named]
    if any(form["kind"] == "object" for form in forms):
        return None
    hashes = digest(original), digest([leaf for _, leaf in named])
    return json.dumps([forms, _places(changed), taken.aliases, *hashes])


def _changed(taken: Snapshot, original: Any) -> list[tuple[dict[str, Any], Any]]:
    before = dict(leaves(original, "inputs"))
    same = (form["place"] in before and equal(leaf, before[form["place"]]) for form, leaf in taken.inputs)
    return [pair for pair, unchanged in zip(taken.inputs, same, strict=True) if not unchanged]


def _places(named: list[tuple[dict[str, Any], Any]]) -> list[str]:
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
