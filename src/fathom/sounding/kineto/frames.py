"""Find the Python frames of a trace that belong to the user's program."""

from __future__ import annotations

import sys

MODULE = "nn.Module: "
_STANDARD = frozenset(sys.stdlib_module_names)
# Folders whose code runs the user's code but is not part of it.
_MACHINERY = ("torch/", "torchgen/", "functorch/", "triton/", "fathom/")


def is_user_frame(name: str) -> bool:
    """Return whether a frame `path(line): function` is not of torch, the standard library or a built-in."""
    path, bracket, _ = name.partition("(")
    if not bracket or not path.endswith(".py"):
        return False
    if "torchinductor" in path or ("/lib/python3" in path and "-packages/" not in path):
        return False
    path = path.rpartition("-packages/")[2].lstrip("./")
    return not path.startswith(_MACHINERY) and path.partition("/")[0].removesuffix(".py") not in _STANDARD


def user_frame(stack: str | None) -> str | None:
    """Return the user's innermost frame in a call stack (of older traces: innermost frame first), or None."""
    frames = (frame.strip() for frame in (stack or "").split(";"))
    return next((frame for frame in frames if is_user_frame(frame)), None)
