"""Inputs in double precision, for the reference."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from fathom.referee.child.values import is_module, is_tensor, torch


def upcast(value: Any) -> Any:
    """Copy the value with floating-point tensors, arrays and modules in float64 and complex ones in
    complex128.
    """
    if isinstance(value, dict):
        return {key: upcast(item) for key, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(upcast(item) for item in value)
    if is_module(value):
        return copy.deepcopy(value).double()
    if is_tensor(value):
        return _tensor(value)
    if type(value) is np.ndarray and value.dtype.kind in "fc":
        return value.astype(np.float64 if value.dtype.kind == "f" else np.complex128)
    return value


def _tensor(value: Any) -> Any:
    lib = torch()
    if not (value.is_floating_point() or value.is_complex()):
        return value
    wide = value.detach().to(lib.complex128 if value.is_complex() else lib.float64)
    return wide.requires_grad_(value.requires_grad)
