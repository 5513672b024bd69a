"""The work of a call: FLOPs and bytes, declared by the pair or derived."""

from __future__ import annotations

from typing import Any

from fathom.referee.child.values import is_tensor, leaves, torch


def declared(function: Any, call: Any) -> dict[str, Any]:
    """The result of the pair's `work` function for these inputs."""
    amounts = dict(function(*call[0], **call[1]))
    return {name: amounts.get(name) for name in ("flops", "bytes", "unit")} | {"source": "given"}


def derived(target: Any, call: Any) -> dict[str, Any]:
    """FLOPs by torch's counter, and the bytes of every tensor in or out once; {} without torch."""
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
