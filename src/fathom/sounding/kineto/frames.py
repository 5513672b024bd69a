"""Which Python frames of a trace belong to the user's program."""

from __future__ import annotations

import sys

MODULE = "nn.Module: "
_STANDARD = frozenset(sys.stdlib_module_names)
# Trees whose frames run the user's code rather than being it.
_MACHINERY = ("torch/", "torchgen/", "functorch/", "triton/", "fathom/")


def is_user_frame(name: str) -> bool:
    """Whether a frame `path(line): function` is the program's: no torch, no standard library, no built-in."""
    path, bracket, _ = name.partition("(")
    if not bracket or not path.endswith(".py"):
        return False
    if "torchinductor" in path or ("/lib/python3" in path and "-packages/" not in path):
        return False
    path = path.rpartition("-packages/")[2].lstrip("./")
    return not path.startswith(_MACHINERY) and path.partition("/")[0].removesuffix(".py") not in _STANDARD


def user_frame(stack: str | None) -> str | None:
    """The user's innermost frame of a call stack, which older traces write innermost first."""
    frames = (frame.strip() for frame in (stack or "").split(";"))
    return next((frame for frame in frames if is_user_frame(frame)), None)
