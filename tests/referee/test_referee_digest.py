"""Hashes of what functions take and return: equal for the same bytes, different for any other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.referee.child.values import digest, mixed

torch = pytest.importorskip("torch")
MASK = 2**64 - 1


def splitmix(data: bytes) -> int:
    """The same sum in Python's integers, word by word."""
    total, padded = 0, data + bytes(-len(data) % 8)
    for place in range(len(padded) // 8):
        x = int.from_bytes(padded[8 * place : 8 * place + 8], "little")
        x = (x + place * 0x9E3779B97F4A7C15) & MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        total += x ^ (x >> 31)
    return total & MASK


def tensor(data: bytes) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy())


@given(st.binary(max_size=200), st.integers(0, 9))
def test_it_is_the_published_mix_wherever_the_bytes_lie(data: bytes, offset: int) -> None:
    wanted = f"{len(data)} {splitmix(data)}".encode()
    assert mixed(tensor(bytes(offset) + data)[offset:]) == wanted


def test_large_ones_are_hashed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = torch.arange(1000, dtype=torch.float64)
    total = mixed(numbers)
    monkeypatch.setattr("fathom.referee.child.values.PART", 7)
    assert mixed(numbers) == total == f"8000 {splitmix(numbers.numpy().tobytes())}".encode()


@given(st.binary(min_size=1, max_size=64), st.data())
def test_another_byte_or_another_order_is_another_hash(data: bytes, choice: st.DataObject) -> None:
    at, by = choice.draw(st.integers(0, len(data) - 1)), choice.draw(st.integers(1, 255))
    other = data[:at] + bytes([data[at] ^ by]) + data[at + 1 :]
    assert mixed(tensor(data)) != mixed(tensor(other))
    assert mixed(tensor(data)) != mixed(tensor(data + b"\0"))
    words = torch.arange(64).float()
    assert mixed(words) != mixed(words.flip(0)) and mixed(words) == mixed(words.clone())


def test_a_hash_tells_places_and_values() -> None:
    x = torch.ones(3)
    assert digest({"a": x}) == digest({"a": x.clone()})
    assert len({digest(each) for each in ({"a": x}, {"b": x}, {"a": x + 1}, {"a": [x, 1]}, "text")}) == 5
