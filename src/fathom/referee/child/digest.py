"""Hashes of arguments and results. Tensors on a GPU are hashed there."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from fathom.referee.child.values import flat, is_tensor, kind, leaves, torch, view

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
