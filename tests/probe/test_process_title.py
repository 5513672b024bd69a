"""The name of a process: the title that it set, without arguments, which may contain secrets."""

from __future__ import annotations

import sys
import types

import pytest

from fathom.probe.process import describe


@pytest.mark.parametrize(
    ("title", "program"),
    [
        ("VLLM::EngineCore --api-key secret", "VLLM::EngineCore"),
        ("ray::train", "ray::train"),
        ("", "train.py"),
        (f"{sys.orig_argv[0]} -m train --api-key secret", "train.py"),  # none was set
        (f"{sys.executable} -m train --api-key secret", "train.py"),
    ],
)
def test_a_process_is_named_by_its_title(monkeypatch, title, program):
    titles = types.ModuleType("setproctitle")
    titles.getproctitle = lambda: title
    monkeypatch.setitem(sys.modules, "setproctitle", titles)
    monkeypatch.setattr(sys, "argv", ["train.py", "--api-key", "secret"])
    assert describe("worker", 0)["program"] == program


def test_a_process_without_the_package_is_named_by_its_script(monkeypatch):
    monkeypatch.delitem(sys.modules, "setproctitle", raising=False)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    assert describe("worker", 0)["program"] == "train.py"
