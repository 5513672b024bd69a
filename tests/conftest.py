"""Fixtures and order of all tests."""

from __future__ import annotations

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
    """Put long tests first, then modules with many tests: a worker that began one last would end alone."""
    modules: dict[pytest.Item | None, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.getparent(pytest.Module), []).append(item)
    order = {module: (min(map(_turn, tests)), -len(tests)) for module, tests in modules.items()}
    for item in items:
        _share_worker(item)
    items.sort(key=lambda item: order[item.getparent(pytest.Module)])


def _turn(item: pytest.Item) -> int:
    """Tests that share something slow come before programs, and programs before the others."""
    if item.get_closest_marker("xdist_group") or _shared(item):
        return 0
    return 1 if item.get_closest_marker("programs") else 2


def _share_worker(item: pytest.Item) -> None:
    """Let one worker run all quick tests of a module, and programs that share a fixture of their module.

    To hand out a test takes xdist milliseconds, and modules keep what their tests have in common.
    """
    if item.get_closest_marker("xdist_group"):
        return
    shared = _shared(item) if item.get_closest_marker("programs") else [item.nodeid.partition("::")[0]]
    if shared:
        item.add_marker(pytest.mark.xdist_group(f"{item.path.stem} {' '.join(shared)}"))


def _shared(item: pytest.Item) -> list[str]:
    """The fixtures of its module that a test uses, with the place of their parameter."""
    if not isinstance(item, pytest.Function):
        return []
    places = item.callspec.indices if hasattr(item, "callspec") else {}
    return [
        f"{name}={places.get(name)}"
        for name, result in sorted(item._fixtureinfo.name2fixturedefs.items())
        if result[-1].scope == "module"
    ]


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
