"""The size of a batch, if it is cheap to determine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

TOKENS = "input_ids"


def size(data: Any, depth: int = 3) -> tuple[int | None, int | None]:
    """Return (samples, tokens): the first tensor's first dimension, and the elements of `input_ids`."""
    if isinstance(data, torch.Tensor):
        return (data.shape[0] if data.dim() else None), None
    if depth == 0:
        return None, None
    if isinstance(data, Mapping):
        ids = data.get(TOKENS)
        if isinstance(ids, torch.Tensor) and ids.dim() == 2:
            return ids.shape[0], ids.numel()
        return size(next(iter(data.values()), None), depth - 1)
    if isinstance(data, (tuple, list)) and data:
        return size(data[0], depth - 1)
    return None, None
