"""Fixtures and order of all tests."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Without a GPU, Triton's interpreter runs its kernels: the first import of triton decides, in any test.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# How long an example takes says how busy the machine is.
settings.register_profile("fathom", deadline=None)
settings.load_profile("fathom")


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups next
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put modules with long tests first: a worker that began one last would leave the other worker idle."""
    turns: dict[pytest.Item | None, int] = {}
    for item in items:
        module = item.getparent(pytest.Module)
        _share_worker(item)
        turns[module] = min(turns.get(module, 2), _turn(item))
    items.sort(key=lambda item: turns[item.getparent(pytest.Module)])


def pytest_collection_finish() -> None:
    """Keep modules and tests out of garbage collections, each of which would look through all of them."""
    gc.collect()
    gc.freeze()


def _turn(item: pytest.Item) -> int:
    """Groups, which one worker runs from end to end, come before programs, programs before all others."""
    if item.get_closest_marker("xdist_group"):
        return 0
    return 1 if item.get_closest_marker("programs") else 2


def _share_worker(item: pytest.Item) -> None:
    """Tests that share a fixture of their module share a worker, so that it is made once."""
    if item.get_closest_marker("xdist_group") or not isinstance(item, pytest.Function):
        return
    places = item.callspec.indices if hasattr(item, "callspec") else {}
    shared = [
        f"{name}={places.get(name)}"
        for name, result in sorted(item._fixtureinfo.name2fixturedefs.items())
        if result[-1].scope == "module"
    ]
    if shared:
        item.add_marker(pytest.mark.xdist_group(f"{item.path.stem} {' '.join(shared)}"))


@pytest.fixture(autouse=True)
def _nothing_is_remembered(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Hide the stored ceilings of this machine, and caches; programs start without measuring any."""
    monkeypatch.setenv("FATHOM_HOME", str(tmp_path_factory.getbasetemp() / "remembers-nothing"))
    monkeypatch.setenv("FATHOM_NO_CACHE", "1")
    monkeypatch.setenv("FATHOM_MEASURE", "0")


@pytest.fixture(autouse=True)
def _torch_as_it_was() -> Iterator[None]:
    """Measuring processes set torch up for themselves; in a test's process that must not outlive the test."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_grad_enabled"):
        torch.set_grad_enabled(True)
        if threads := int(os.environ.get("OMP_NUM_THREADS", "0").split(",")[0]):
            torch.set_num_threads(threads)
