"""Arguments and results: leaves of nested containers, raw bytes, refilling in place, double precision,
and hashes, for which tensors on a GPU stay there.

Imports nothing from Fathom when it runs, and uses torch only if the process has imported it.
"""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fathom.referee.protocol import Described

Call = tuple[tuple[Any, ...], dict[str, object]]  # positional and keyword arguments
TEXT = (str, bytes, type(None))
NUMBERS = (bool, int, float, complex)


def torch() -> Any:
    """Return torch if this process has imported it, else None."""
    return sys.modules.get("torch")


def leaves(value: Any, path: str = "result") -> Iterator[tuple[str, Any]]:
    """Yield (place, value) for every value inside tuples, lists and dicts. A container whose class defines
    its own iteration, which may compute, counts as a value.
    """
    if own_walk(value):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}[{key!r}]")
    elif isinstance(value, (tuple, list)):
        for number, item in enumerate(value):
            yield from leaves(item, f"{path}[{number}]")
    elif is_module(value):
        for name, item in (*value.named_parameters(), *value.named_buffers()):
            yield f"{path}.{name}", item
    else:
        yield path, value


def own_walk(value: Any) -> bool:
    """Return whether the value is a container whose class defines its own iteration."""
    if isinstance(value, dict):
        return type(value).items not in (dict.items, OrderedDict.items)
    return isinstance(value, (tuple, list)) and type(value).__iter__ not in (tuple.__iter__, list.__iter__)


def is_module(value: Any) -> bool:
    """Return whether the value is a torch module."""
    lib = torch()
    return lib is not None and isinstance(value, lib.nn.Module)


def is_tensor(value: Any) -> bool:
    """Return whether the value is a plain tensor, not a subclass that may compute later."""
    lib = torch()
    if lib is None or type(value) not in (lib.Tensor, lib.nn.Parameter):
        return False
    return value.layout is lib.strided and not value.is_quantized and value.device.type != "meta"


def kind(value: Any) -> str:
    """Return the kind of a value: `tensor`, `array`, `number`, `text`, or `object` for anything else."""
    if is_tensor(value):
        return "tensor"
    if type(value) is np.ndarray and value.dtype.kind in "biufc":
        return "array"
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return "number"
    if type(value) in NUMBERS:
        return "number" if np.asarray(value).dtype.kind != "O" else "text"
    return "text" if type(value) in TEXT or type(value) is int else "object"


def view(value: Any) -> Any:
    """Return the bytes of a tensor, array, number or text in row-major order; no copy if contiguous."""
    if is_tensor(value):
        return flat(value).cpu().numpy().data
    if kind(value) == "text":
        return repr(value).encode()
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8).data


def flat(value: Any) -> Any:
    """Return the bytes of a tensor as one row on its device, without a copy if contiguous."""
    row = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return row.view(torch().uint8)


def raw(value: Any) -> bytes:
    """Return a copy of the bytes of a value (see `view`)."""
    return bytes(view(value))


def copied(value: Any) -> Any:
    """Return a detached copy of a tensor or array, and anything else unchanged."""
    if is_tensor(value):
        return value.detach().clone()
    return value.copy() if kind(value) == "array" else value


def equal(first: Any, other: Any) -> bool:
    """Return whether two tensors or arrays hold the same bytes."""
    if is_tensor(first) and is_tensor(other) and first.device == other.device:
        return bool(torch().equal(flat(first), flat(other)))
    return np.array_equal(np.frombuffer(view(first), np.uint8), np.frombuffer(view(other), np.uint8))


def described(value: Any) -> Described:
    """Return the form of a value."""
    what = kind(value)
    words: Described = {"kind": what, "type": f"{type(value).__module__}.{type(value).__qualname__}"}
    if what == "tensor":
        return {
            "kind": what,
            "type": "torch.Tensor",  # parameters count as tensors
            "stride": list(value.stride()),
            "device": value.device.type,
            "dtype": str(value.dtype).removeprefix("torch."),
            "shape": list(value.shape),
        }
    if what == "object":
        return {**words, "deferred": deferred(value)}
    if what == "text":
        return words
    array = np.asarray(value)
    stride = [step // max(array.itemsize, 1) for step in array.strides]
    return {**words, "dtype": str(array.dtype), "shape": list(array.shape), "stride": stride}


def deferred(value: Any) -> bool:
    """Return whether the value looks like a promise, which computes when it is read."""
    promises = ("__array__", "__torch_function__", "__await__", "__next__", "result", "__call__", "__float__")
    return own_walk(value) or any(hasattr(type(value), name) for name in promises)


def address(value: Any) -> tuple[int, int] | None:
    """Return the bounds of the memory of a tensor or array; None for other values."""
    if is_tensor(value):
        storage = value.untyped_storage()
        return (storage.data_ptr(), storage.data_ptr() + storage.nbytes()) if storage.nbytes() else None
    if type(value) is np.ndarray and value.size:
        low, high = getattr(np.lib, "array_utils", np).byte_bounds(value)  # numpy 1 has it at the top
        return low, high
    return None


def overlap(first: Any, other: Any) -> bool:
    """Return whether two values share memory."""
    a, b = address(first), address(other)
    return a is not None and b is not None and a[0] < b[1] and b[0] < a[1]


def arguments(value: Any) -> Call:
    """Return positional and keyword arguments from the result of an `inputs` function, which is a tuple, a
    dict, both, or a value.
    """
    if isinstance(value, dict):
        return (), value
    if not isinstance(value, tuple):
        return (value,), {}
    both = len(value) == 2 and isinstance(value[0], tuple) and isinstance(value[1], dict)
    return value if both else (value, {})


def refilled(old: Any, new: Any) -> Any:
    """Return `new`, in the memory of `old` if the forms agree, which exposes caches keyed by address."""
    if type(old) is not type(new):
        return new
    if isinstance(new, dict):
        return {key: refilled(old.get(key), item) for key, item in new.items()}
    if type(new) in (tuple, list):
        if len(old) != len(new):
            return new
        return type(new)(refilled(a, b) for a, b in zip(old, new, strict=True))
    return old if _copied(old, new) else new


def _copied(old: Any, new: Any) -> bool:
    if is_module(new):
        pairs = list(zip(leaves(old), leaves(new), strict=False))
        return old.training == new.training and all(_copied(a, b) for (_, a), (_, b) in pairs)
    if is_tensor(new):
        return _copied_tensor(old, new)
    if kind(new) != "array" or not old.flags.writeable:
        return False
    if (old.shape, old.dtype, old.strides) != (new.shape, new.dtype, new.strides):
        return False
    np.copyto(old, new)
    return True


def _copied_tensor(old: Any, new: Any) -> bool:
    form = [(t.shape, t.dtype, t.stride(), t.device, t.requires_grad, t.is_leaf) for t in (old, new)]
    if form[0] != form[1] or not new.is_leaf:
        return False
    old.data.copy_(new.data)
    old.grad = None
    return True


def upcast(value: Any) -> Any:
    """Return a copy with floating-point tensors, arrays and modules in float64, complex in complex128."""
    if isinstance(value, dict):
        return {key: upcast(item) for key, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(upcast(item) for item in value)
    if is_module(value):
        return copy.deepcopy(value).double()
    if is_tensor(value):
        return _upcast_tensor(value)
    if type(value) is np.ndarray and value.dtype.kind in "fc":
        return value.astype(np.float64 if value.dtype.kind == "f" else np.complex128)
    return value


def _upcast_tensor(value: Any) -> Any:
    lib = torch()
    if not (value.is_floating_point() or value.is_complex()):
        return value
    wide = value.detach().to(lib.complex128 if value.is_complex() else lib.float64)
    return wide.requires_grad_(value.requires_grad)


# Hashes
PART = 2**23  # words of 8 bytes hashed at a time
GOLDEN, FIRST, SECOND = (
    value - 2**64 for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def digest(value: Any) -> str:
    """Return a hash of all leaves inside the value, with their places."""
    hasher = blake2b(digest_size=16)
    for path, leaf in leaves(value):
        hasher.update(path.encode())
        if kind(leaf) != "object":
            hasher.update(mixed(leaf) if is_tensor(leaf) and leaf.is_cuda else view(leaf))
    return hasher.hexdigest()


def mixed(tensor: Any) -> bytes:
    """Return the tensor's size and hash: the sum of `mix(word + place * GOLDEN)` over 8-byte words, mod 2^64.

    The mix and its constants are those of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
    generators, OOPSLA 2014).
    """
    lib, data = torch(), flat(tensor)
    size = data.numel()
    if size % 8:
        data = lib.nn.functional.pad(data, (0, -size % 8))
    elif data.data_ptr() % 8:
        data = data.clone()
    words, total = data.view(lib.int64) if size else data, 0
    for at in range(0, len(words), PART):
        part = words[at : at + PART]
        places = lib.arange(at, at + len(part), device=part.device)
        total += int(_mix(part + places * GOLDEN).sum())
    return f"{size} {total % 2**64}".encode()


def _mix(words: Any) -> Any:
    words = _folded(words, 30) * FIRST
    words = _folded(words, 27) * SECOND
    return _folded(words, 31)


def _folded(words: Any, by: int) -> Any:
    return words ^ ((words >> by) & (2 ** (64 - by) - 1))  # torch shifts the sign in
