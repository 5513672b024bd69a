"""Find programs of the CUDA toolkit: on the path, in wheels, or where the toolkit is installed."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec


def toolkit_program(name: str) -> str | None:
    """Return the path of a program of the CUDA toolkit, or None if it is not installed."""
    spec = find_spec("nvidia")
    wheels = [f"{place}/cu13" for place in (spec.submodule_search_locations or ())] if spec else []
    roots = [*wheels, os.environ.get("CUDA_HOME", "/usr/local/cuda")]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(f"{root}/bin" for root in roots))
