"""Run every benchmark of these folders that needs neither arguments nor a GPU, and print what it found.

python -m benchmarks [NAME …]
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parent


def modules() -> dict[str, str]:
    """Benchmarks that can run by themselves, by name: folders with a function `bench`, else files."""
    files = [path for path in FOLDER.glob("*/*.py") if "\ndef bench(" in path.read_text()]
    parents = {path.parent for path in files if path.stem == "__init__"}
    result = [path.parent if path.parent in parents else path.with_suffix("") for path in files]
    names = {path.stem: ".".join(path.relative_to(FOLDER).parts) for path in result}
    return dict(sorted(names.items()))


def main() -> None:
    result = modules()
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(result)}")
    wanted = parser.parse_args().names
    if unknown := set(wanted) - set(result):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    for name in wanted or result:
        print(f"== {name}", flush=True)
        print(import_module(f"benchmarks.{result[name]}").bench(), flush=True)


if __name__ == "__main__":
    main()
