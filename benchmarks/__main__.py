"""Run every benchmark of this folder that needs neither arguments nor a GPU, and print what it found.

python -m benchmarks [NAME …]
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Benchmarks that can run by themselves: files and folders with a function `bench`."""
    files = [*FOLDER.glob("*.py"), *FOLDER.glob("*/__init__.py")]
    found = [path for path in files if "\ndef bench(" in path.read_text()]
    return sorted(path.parent.name if path.stem == "__init__" else path.stem for path in found)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names())}")
    wanted = parser.parse_args().names
    if unknown := set(wanted) - set(names()):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    for name in wanted or names():
        print(f"== {name}", flush=True)
        print(import_module(f"benchmarks.{name}").bench(), flush=True)


if __name__ == "__main__":
    main()
