"""Every name that a room exports is there: names loaded on first use fail nowhere else."""

from __future__ import annotations

import importlib
from pkgutil import walk_packages

import pytest

import fathom

PACKAGES = [module.name for module in walk_packages(fathom.__path__, "fathom.") if module.ispkg]


@pytest.mark.parametrize("package", ["fathom", *PACKAGES])
def test_every_exported_name_is_there(package):
    module = importlib.import_module(package)
    assert [name for name in getattr(module, "__all__", []) if not hasattr(module, name)] == []
