"""Results of operations rounded at random, as another order of the same sums might round them.

This is Monte Carlo arithmetic (D. S. Parker, Monte Carlo Arithmetic, UCLA CSD-970002, 1997) on the level of
PyTorch's operations, forward and backward: a value x becomes x(1 + uξ), where u is the unit roundoff of its
type and ξ is uniform between -1 and 1. How far the program's losses and weights move says how much of a
difference rounding explains. What is exact (a copy, a choice, a sign) stays as it is, and so do updates in
place: an optimizer's own arithmetic and running means.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from fathom.probe.faults import guarded
from fathom.probe.session import Session

PART = "rounding at random"
_SUMS = re.compile(
    r"mm|addmm|bmm|baddbmm|mv|dot|sum|mean|prod|cumsum|logsumexp|linear\w*|einsum|(?:var|std)(?:_mean)?"
    r"|\w*(?:convolution|attention|norm|softmax|_loss|avg_pool|upsample_bi)\w*"
)
_EXACT = re.compile(
    r"abs|ceil|clamp\w*|clip|clone|copysign|floor|f?max|f?min|maximum|minimum|masked_fill|nan_to_num|neg|relu6?"
    r"|hardtanh|threshold\w*|round|sgn|sign|trunc|where|heaviside"
)


def install(session: Session, seed: int) -> None:
    """Round the results of operations from now on; the program's own random numbers stay as they are."""
    torch = session.torch
    from torch.utils._python_dispatch import TorchDispatchMode

    generators: dict[Any, Any] = {}

    @guarded(PART)
    def near(value: Any) -> Any:
        if value.device not in generators:
            generators[value.device] = torch.Generator(value.device).manual_seed(seed)
        noise = torch.rand(value.shape, generator=generators[value.device], device=value.device)
        u = torch.finfo(value.dtype).eps / 2
        wide = torch.promote_types(value.dtype, torch.float32)
        return torch.empty_like(value).copy_(value.to(wide) * (1 + u * (2 * noise.to(wide) - 1)))

    def rounded(value: Any) -> Any:
        result = near(value) if _is_plain(torch, value) else value
        return value if result is None else result  # it failed, and was noted

    class Rounded(TorchDispatchMode):
        def __torch_dispatch__(self, op: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = op(*args, **(kwargs or {}))
            if not _rounds(torch, op):
                return result
            if isinstance(result, (tuple, list)):
                return type(result)(rounded(value) for value in result)
            return rounded(result)

    Rounded().__enter__()


@cache
def _rounds(torch: Any, op: Any) -> bool:
    """Whether an operation returns new values that its arithmetic rounds."""
    if any(result.alias_info is not None for result in op._schema.returns):
        return False
    name = op._schema.name.partition("::")[2]
    pointwise = torch.Tag.pointwise in op.tags and not _EXACT.fullmatch(name)
    return pointwise or _SUMS.fullmatch(name.lstrip("_")) is not None


def _is_plain(torch: Any, value: Any) -> bool:
    """Whether this is a tensor of floats outside of graphs that are being captured."""
    if type(value) is not torch.Tensor or not value.is_floating_point():
        return False
    return not (value.is_cuda and torch.cuda.is_current_stream_capturing())
