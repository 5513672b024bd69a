"""Writing a result as raw bytes with a description, so that another process compares it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fathom.referee.child.digest import digest
from fathom.referee.child.inspection import aliases
from fathom.referee.child.values import copied, described, equal, is_tensor, kind, leaves, torch, view

Named = tuple[str, Any]
GRADIENT = "gradient of"  # how the place of one begins that was computed after the call


@dataclass(frozen=True)
class Held:
    """One call's result: each value, or a copy of it, with the description of the original."""

    result: list[tuple[dict[str, Any], Any]]
    inputs: list[tuple[dict[str, Any], Any]]  # after the call
    gradients: list[tuple[dict[str, Any], Any]]
    aliases: list[str]


def held(result: Any, call: Any, seed: int, copy: Callable[[Any], Any] = copied) -> Held:
    """Everything that a comparison looks at, by default as it is now."""
    inputs = [(place, leaf) for place, leaf in leaves(call, "inputs") if kind(leaf) in ("tensor", "array")]
    told = [f"{one} and {other}" for one, other in aliases(result, call)]
    gradients = _gradients(result, call, seed)
    kept = [
        [({"place": place, **described(leaf)}, copy(leaf)) for place, leaf in named]
        for named in (leaves(result), inputs, gradients)
    ]
    return Held(kept[0], kept[1], kept[2], told)


def save(found: Held, original: Any, path: Path) -> dict[str, Any]:
    """`{"leaves": [...], "mutated": [...], "aliases": [...]}`; each leaf says where its bytes lie in `path`.

    What a call changes of its inputs, and gradients, are leaves too.
    """
    changed = _changed(found, original)
    forms, offset = [], 0
    with path.open("wb") as file:
        for form, leaf in (*found.result, *changed, *found.gradients):
            written = 0 if form["kind"] == "object" else file.write(view(leaf))
            forms.append({**form, "offset": offset, "bytes": written})
            offset += written
    return {"leaves": forms, "mutated": _places(changed), "aliases": found.aliases}


def fingerprint(found: Held, original: Any) -> str | None:
    """A hash of all that `save` tells and writes, with the inputs; None where something has no bytes."""
    changed = _changed(found, original)
    named = [*found.result, *changed, *found.gradients]
    forms = [form for form, _ in named]
    if any(form["kind"] == "object" for form in forms):
        return None
    hashes = digest(original), digest([leaf for _, leaf in named])
    return json.dumps([forms, _places(changed), found.aliases, *hashes])


def _changed(found: Held, original: Any) -> list[tuple[dict[str, Any], Any]]:
    before = dict(leaves(original, "inputs"))
    return [
        (form, leaf)
        for form, leaf in found.inputs
        if form["place"] not in before or not equal(leaf, before[form["place"]])
    ]


def _places(named: list[tuple[dict[str, Any], Any]]) -> list[str]:
    return [form["place"] for form, _ in named]


def _gradients(result: Any, call: Any, seed: int) -> Iterator[Named]:
    """Gradients of the timed result itself, under random signs, which every dtype holds exactly."""
    lib = torch()
    inputs = [(p, x) for p, x in leaves(call, "inputs") if is_tensor(x) and x.requires_grad and x.is_leaf]
    for place, leaf in inputs:
        if leaf.grad is not None:
            yield f"{place}.grad", leaf.grad
    outputs = [x for _, x in leaves(result) if is_tensor(x) and x.requires_grad]
    if not inputs or not outputs:
        return
    signs = [_signs(lib, out, seed + number) for number, out in enumerate(outputs)]
    found = lib.autograd.grad(outputs, [x for _, x in inputs], signs, allow_unused=True)
    for (place, leaf), gradient in zip(inputs, found, strict=True):
        yield f"{GRADIENT} {place}", lib.zeros_like(leaf) if gradient is None else gradient


def _signs(lib: Any, output: Any, seed: int) -> Any:
    source = lib.Generator().manual_seed(seed)
    ones = lib.randint(0, 2, tuple(output.shape), generator=source) * 2 - 1
    return ones.to(device=output.device, dtype=output.dtype)
