"""Fused optimizers, and operators over lists of tensors.

FLOPs per parameter are those of the update rule. The profiler does not record the dtype of a list, so bytes
are known only if the kernel's name contains it.
"""

from __future__ import annotations

import msgspec

from fathom.analysis.work.call import Call, Formula, Tensor, UnknownWorkError, Work


class Update(msgspec.Struct, frozen=True):
    """An update rule: FLOPs per parameter, and the positions of the lists that it reads and writes."""

    flops: float
    read: tuple[int, ...]
    written: tuple[int, ...]


_ADAM = Update(14.0, (0, 1, 2, 3, 4), (0, 2, 3, 4))  # parameter, gradient, moments; for AMSGrad their maximum
UPDATES = {
    "aten::_fused_adam_": _ADAM,
    "aten::_fused_adamw_": _ADAM,
    "aten::_fused_sgd_": Update(4.0, (0, 1, 2), (0, 2)),  # parameter, gradient, momentum
    "aten::_fused_adagrad_": Update(6.0, (0, 1, 2), (0, 2)),  # parameter, gradient, sum of squares
}
# FLOPs per element of the first list, by operator
_EACH = {
    0.0: "copy zero",
    1.0: "add sub mul div neg sqrt rsqrt abs exp log reciprocal maximum minimum clamp_min clamp_max pow sign",
    2.0: "norm",
    3.0: "addcmul addcdiv lerp",
}


def _update(rule: Update) -> Formula:
    def formula(call: Call) -> Work:
        flops = rule.flops * _count(call.tensor_list(0))
        return _with_bytes(
            flops, call.tensor_list(0), [call.tensor_list(i) for i in (*rule.read, *rule.written)]
        )

    return formula


def _foreach(flops: float, reads: bool = True, reduces: bool = False) -> Formula:
    def formula(call: Call) -> Work:
        first = call.tensor_list(0)
        lists = [call.tensor_list(i) for i in range(len(call)) if call.is_list(i)]
        moved = lists if reads else lists[1:]
        return _with_bytes(flops * _count(first), first, moved if reduces else [*moved, first])

    return formula


def _count(tensors: list[Tensor]) -> int:
    return sum(t.numel for t in tensors)


def _with_bytes(flops: float, first: list[Tensor], moved: list[list[Tensor]]) -> Work:
    try:
        size = sum(t.bytes for tensors in moved for t in tensors)
    except UnknownWorkError as error:
        return Work(flops, None, None, str(error))
    return Work(flops, size, first[0].dtype if first else None)


def _unscale(call: Call) -> Work:
    """Return the work of _amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, inverse_scale)."""
    first = call.tensor_list(0)
    return _with_bytes(float(_count(first)), first, [first, first])


def _each() -> dict[str, Formula]:
    formulas: dict[str, Formula] = {}
    for flops, names in _EACH.items():
        for name in names.split():
            reads = name not in ("copy", "zero")
            formulas[f"aten::_foreach_{name}_"] = _foreach(flops, reads)
            formulas[f"aten::_foreach_{name}"] = _foreach(flops, reduces=name == "norm")
    return formulas


FORMULAS: dict[str, Formula] = {
    **{name: _update(rule) for name, rule in UPDATES.items()},
    **_each(),
    "aten::_amp_foreach_non_finite_check_and_unscale_": _unscale,
}
