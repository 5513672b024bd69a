"""Load the package's data files."""

from __future__ import annotations

import marshal
import sys
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

from fathom.atomic import atomic_write

ROOT = Path(__file__).parent.parent


def load(package: str, name: str) -> Any:
    """Return the content of `NAME.yaml` in the package's folder; `name` may contain a subfolder.

    Like the code of modules, it is parsed once and then read from `__pycache__`, if Python may write there.
    """
    file = ROOT / package.replace(".", "/") / f"{name}.yaml"
    about = file.stat()
    version = about.st_mtime_ns, about.st_size
    parsed = Path(cache_from_source(f"{file}.parsed"))
    with suppress(OSError, ValueError, TypeError, EOFError):  # there is none, or it is damaged
        of, content = marshal.loads(parsed.read_bytes())
        if of == version:
            return content
    content = parse(file.read_text(encoding="utf-8"))
    if not sys.dont_write_bytecode:
        with suppress(OSError, ValueError):  # not writable, or a value that marshal lacks
            parsed.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(parsed) as part:
                Path(part).write_bytes(marshal.dumps((version, content)))
                Path(part).chmod(about.st_mode & 0o666)
    return content


def parse(text: str) -> Any:
    """Return the value of a YAML document of ours. Raises yaml.YAMLError."""
    import yaml  # imported here, because few commands load a data file

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)  # C, if built, is ten times faster
    return _built(loader, loader.get_single_node())


def _built(loader: Any, node: Any) -> Any:
    """Return the value of a node; the loader's own methods take twice as long."""
    if node.id == "sequence":
        return [_built(loader, value) for value in node.value]
    if node.id == "mapping":
        loader.flatten_mapping(node)
        return {_built(loader, key): _built(loader, value) for key, value in node.value}
    return node.value if node.tag == "tag:yaml.org,2002:str" else loader.construct_object(node)
