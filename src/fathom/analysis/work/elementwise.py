"""Elementwise operators: one FLOP per output element, for any function.

Fused operators count each of their functions. Comparisons, logic, casts, moves and integer arithmetic have no
FLOPs. The bytes are every input once, before broadcasting, and the output once; an in-place argument is read
and written.
"""

from __future__ import annotations

import msgspec

from fathom.analysis.work.call import Call, Formula, Tensor, Work, numel, ops
from fathom.analysis.work.dtypes import DEFAULT_FLOAT, SIZE, is_integral, promote
from fathom.analysis.work.matmul import broadcast


class Rule(msgspec.Struct, frozen=True):
    """A rule for an operator with `inputs` leading tensors and one output; a further tensor is `out`."""

    inputs: int
    flops: float
    out: str = (
        ""  # the output's dtype: "bool"; for integers "float" or "sum" (widened); else the promoted one
    )
    untyped: int = 0  # leading inputs that do not affect the output's dtype


def _names(text: str, rule: Rule) -> dict[str, Rule]:
    return {f"aten::{name}": rule for name in text.split()}


RULES = {
    **_names(
        "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh asinh acosh "
        "atanh tanh sigmoid erf erfc erfinv reciprocal lgamma digamma logit",
        Rule(1, 1, "float"),
    ),
    **_names(
        "abs neg sign sgn floor ceil round trunc frac square relu relu6 gelu silu mish elu celu selu "
        "leaky_relu hardtanh hardsigmoid hardswish softplus softshrink hardshrink threshold clamp_min "
        "clamp_max nan_to_num log_sigmoid_forward tril triu",
        Rule(1, 1),
    ),
    **_names("cumsum cumprod", Rule(1, 1, "sum")),
    **_names("flip roll", Rule(1, 0)),
    **_names("isnan isinf isposinf isneginf logical_not signbit", Rule(1, 0, "bool")),
    **_names("bitwise_not", Rule(1, 0)),
    **_names("add sub rsub mul maximum minimum fmax fmin remainder fmod pow hypot", Rule(2, 1)),
    **_names("floor_divide xlogy copysign", Rule(2, 1)),
    **_names("div true_divide atan2 logaddexp", Rule(2, 1, "float")),
    **_names("eq ne lt le gt ge logical_and logical_or logical_xor", Rule(2, 0, "bool")),
    **_names(
        "bitwise_and bitwise_or bitwise_xor __and__ __or__ __xor__ __lshift__ __rshift__ "
        "bitwise_left_shift bitwise_right_shift",
        Rule(2, 0),
    ),
    **_names(
        "threshold_backward gelu_backward silu_backward mish_backward sigmoid_backward tanh_backward "
        "leaky_relu_backward hardtanh_backward hardsigmoid_backward hardswish_backward softplus_backward "
        "elu_backward",
        Rule(2, 2),
    ),
    **_names("native_dropout_backward _masked_scale", Rule(2, 2)),
    **_names("clamp clip", Rule(3, 1)),
    **_names("addcmul addcdiv lerp", Rule(3, 3)),
    **_names("masked_fill", Rule(2, 0)),
    **_names("where", Rule(3, 0, untyped=1)),
    **_names("mse_loss_backward smooth_l1_loss_backward huber_loss_backward", Rule(3, 3)),
    **_names("binary_cross_entropy_backward", Rule(3, 4)),
}


_OF_INTEGERS = {"float": DEFAULT_FLOAT, "sum": "int64"}


def counted(flops: float, moved: float, dtype: str) -> Work:
    """Return work with `flops` of arithmetic on `dtype`; arithmetic on integers has no FLOPs."""
    return Work(0.0 if is_integral(dtype) else flops, moved, dtype)


def _formula(rule: Rule) -> Formula:
    def formula(call: Call) -> Work:
        tensors = call.tensors()
        inputs, given = tensors[: rule.inputs], tensors[rule.inputs :]
        shape = broadcast(*(t.shape for t in inputs))
        out = given[0].dtype if given else _result(rule, inputs)
        moved = _read(inputs) + numel(shape) * SIZE[str(out)]
        return counted(rule.flops * numel(shape), moved, _arithmetic(inputs))

    return formula


def _in_place(rule: Rule) -> Formula:
    def formula(call: Call) -> Work:
        inputs = call.tensors()[: rule.inputs]
        target = call.tensor(0)
        moved = _read(inputs) + target.bytes
        return counted(rule.flops * target.numel, moved, _arithmetic(inputs))

    return formula


def _read(inputs: list[Tensor]) -> float:
    """Return the bytes of inputs; beside tensors, those without dimensions are Python numbers: 0 bytes."""
    tensors = [t for t in inputs if t.shape] or inputs
    return sum(t.bytes for t in tensors)


def _result(rule: Rule, inputs: list[Tensor]) -> str:
    if rule.out == "bool":
        return "bool"
    dtype = _arithmetic(inputs[rule.untyped :])
    return _OF_INTEGERS.get(rule.out, dtype) if is_integral(dtype) else dtype


def _arithmetic(inputs: list[Tensor]) -> str:
    return promote([(str(t.dtype), len(t.shape)) for t in inputs])


def _copy(call: Call) -> Work:
    """Return the work of copy_(target, source)."""
    target, source = call.tensor(0), call.tensor(1)
    return Work(0.0, target.bytes + source.bytes, source.dtype)


def _write(call: Call) -> Work:
    """Return the work of fills and random numbers: only the write of the first argument is counted."""
    target = call.tensor(0)
    return Work(0.0, target.bytes, target.dtype)


def _dropout(call: Call) -> Work:
    """Return the work of native_dropout(x, p, train): compare and scale; write the result and a mask."""
    x = call.tensor(0)
    return Work(2.0 * x.numel, 2 * x.bytes + x.numel, x.dtype)


def _glu(call: Call) -> Work:
    """Return the work of glu(x, dim), in which one half gates the other."""
    x = call.tensor(0)
    return Work(float(x.numel), 1.5 * x.bytes, x.dtype)


def _loss(flops: float, reduction: int) -> Formula:
    """Return a formula for a loss (x, target, ...), reduced to one number unless the reduction is 0."""

    def formula(call: Call) -> Work:
        x, target = call.tensor(0), call.tensor(1)
        out = x.numel if call.ints(reduction)[0] == 0 else 1
        return Work(flops * x.numel, x.bytes + target.bytes + out * x.size, x.dtype)

    return formula


FORMULAS: dict[str, Formula] = {
    **{name: _formula(rule) for name, rule in RULES.items()},
    **{f"{name}_": _in_place(rule) for name, rule in RULES.items() if not name.endswith("backward")},
    **ops("copy_", _copy),
    **ops("fill_ zero_ normal_ uniform_ bernoulli_ random_ exponential_", _write),
    **ops("native_dropout _fused_dropout", _dropout),
    **ops("glu", _glu),
    **ops("mse_loss smooth_l1_loss huber_loss", _loss(3, 2)),
    **ops("binary_cross_entropy", _loss(4, 3)),
}
