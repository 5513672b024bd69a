"""Writing a result as raw bytes with a description, so that another process compares it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fathom.referee.child.inspection import aliases
from fathom.referee.child.values import described, is_tensor, kind, leaves, raw, torch

Named = tuple[str, Any]


def save(result: Any, call: Any, original: Any, path: Path, seed: int) -> dict[str, Any]:
    """`{"leaves": [...], "mutated": [...], "aliases": [...]}`; each leaf says where its bytes lie in `path`.

    What a call changes of its inputs, and gradients, are leaves too.
    """
    changed = list(_mutated(call, original))
    every = [*leaves(result), *changed, *_gradients(result, call, seed)]
    found, offset = [], 0
    with path.open("wb") as file:
        for place, leaf in every:
            data = b"" if kind(leaf) == "object" else raw(leaf)
            file.write(data)
            found.append({"place": place, **described(leaf), "offset": offset, "bytes": len(data)})
            offset += len(data)
    told = [f"{one} and {other}" for one, other in aliases(result, call)]
    return {"leaves": found, "mutated": [place for place, _ in changed], "aliases": told}


def _mutated(call: Any, original: Any) -> Iterator[Named]:
    before = dict(leaves(original, "inputs"))
    for place, leaf in leaves(call, "inputs"):
        if kind(leaf) in ("tensor", "array") and (place not in before or raw(leaf) != raw(before[place])):
            yield place, leaf


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
        yield f"gradient of {place}", lib.zeros_like(leaf) if gradient is None else gradient


def _signs(lib: Any, output: Any, seed: int) -> Any:
    source = lib.Generator().manual_seed(seed)
    ones = lib.randint(0, 2, tuple(output.shape), generator=source) * 2 - 1
    return ones.to(device=output.device, dtype=output.dtype)
