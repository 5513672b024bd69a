"""Results of layers rounded at random, as another order of the same sums might round them.

This is Monte Carlo arithmetic (D. S. Parker, Monte Carlo Arithmetic, UCLA CSD-970002, 1997) on the level of
layers: a value x becomes x(1 + uξ), where u is the unit roundoff of its type and ξ is uniform between
-1 and 1. How far the program's losses and weights move says how much of a difference rounding explains.
"""

from __future__ import annotations

from typing import Any

from fathom.probe.faults import guarded
from fathom.probe.session import Session

PART = "rounding at random"


def install(session: Session, seed: int) -> None:
    """Round what every innermost module returns; the program's own random numbers stay as they are."""
    torch = session.torch
    from torch.nn.modules.module import register_module_forward_hook

    generators: dict[Any, Any] = {}

    @guarded(PART)
    def rounded(module: Any, _: Any, result: Any) -> Any:
        if next(module.children(), None) is not None or not _is_plain_result(torch, result):
            return None
        if result.device not in generators:
            generators[result.device] = torch.Generator(result.device).manual_seed(seed)
        noise = torch.rand(result.shape, generator=generators[result.device], device=result.device)
        u = torch.finfo(result.dtype).eps / 2
        wide = torch.promote_types(result.dtype, torch.float32)
        return (result.to(wide) * (1 + u * (2 * noise.to(wide) - 1))).to(result.dtype)

    register_module_forward_hook(rounded)


def _is_plain_result(torch: Any, result: Any) -> bool:
    """Whether this is a tensor of floats outside of graphs that are being compiled or captured."""
    if type(result) is not torch.Tensor or not result.is_floating_point() or torch.compiler.is_compiling():
        return False
    return not (result.is_cuda and torch.cuda.is_current_stream_capturing())
