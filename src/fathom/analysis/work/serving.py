"""Custom operators of inference servers."""

from __future__ import annotations

from fathom.analysis.work.call import Call, Formula, Work


def _rotary(call: Call) -> Work:
    """Return the work of _C::rotary_embedding(positions, query, key, head_size, …), in place."""
    positions, query, key, cache = (call.tensor(i) for i in (0, 1, 2, 4))
    table = min(positions.numel * cache.shape[1], cache.numel) * cache.size
    moved = positions.bytes + 2 * (query.bytes + key.bytes) + table
    return Work(3.0 * (query.numel + key.numel), moved, query.dtype)


def _quantise(call: Call) -> Work:
    """Return the work of _C::static_scaled_fp8_quant(out, x, scale)."""
    out, x = call.tensor(0), call.tensor(1)
    return Work(float(x.numel), out.bytes + x.bytes, x.dtype)


def _silu_and_mul(call: Call) -> Work:
    """Return the work of _C::silu_and_mul(out, x), in which one half of x gates the other."""
    out, x = call.tensor(0), call.tensor(1)
    return Work(2.0 * out.numel, out.bytes + x.bytes, x.dtype)


def _cache(call: Call) -> Work:
    """_C_cache_ops::reshape_and_cache_flash(key, value, key_cache, value_cache, slots, ...)."""
    key, value, key_cache, slots = (call.tensor(i) for i in (0, 1, 2, 4))
    written = (key.numel + value.numel) * key_cache.size
    return Work(0.0, key.bytes + value.bytes + written + slots.bytes, key.dtype)


FORMULAS: dict[str, Formula] = {
    "_C::rotary_embedding": _rotary,
    "_C::static_scaled_fp8_quant": _quantise,
    "_C::silu_and_mul": _silu_and_mul,
    "_C_cache_ops::reshape_and_cache_flash": _cache,
}
