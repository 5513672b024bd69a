"""What holds for every test."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

# How long an example takes says how busy the machine is.
settings.register_profile("fathom", deadline=None)
settings.load_profile("fathom")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put modules with long tests first: a worker that began one last would leave the other worker idle."""
    turns: dict[pytest.Item | None, int] = {}
    for item in items:
        module = item.getparent(pytest.Module)
        turns[module] = min(turns.get(module, 2), _turn(item))
    items.sort(key=lambda item: turns[item.getparent(pytest.Module)])


def _turn(item: pytest.Item) -> int:
    """Tests that share an examination come before programs, programs before all others."""
    if item.get_closest_marker("xdist_group"):
        return 0
    return 1 if item.get_closest_marker("programs") else 2


@pytest.fixture(autouse=True)
def _nothing_is_remembered(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What this machine remembers of itself must not show in a test."""
    monkeypatch.setenv("FATHOM_HOME", str(tmp_path_factory.getbasetemp() / "remembers-nothing"))
    monkeypatch.setenv("FATHOM_NO_CACHE", "1")


@pytest.fixture(autouse=True)
def _torch_as_it_was() -> Iterator[None]:
    """Measuring processes set torch up for themselves; in a test's process that must not outlive the test."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_grad_enabled"):
        torch.set_grad_enabled(True)
