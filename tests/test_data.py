"""Data files load as PyYAML reads them."""

from importlib.resources import files
from pathlib import Path

import yaml

from fathom.data import load


def test_every_data_file_has_the_value_that_yaml_gives_it():
    root = Path(str(files("fathom")))
    paths = sorted(root.rglob("*.yaml"))
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for path in paths:
        package = ".".join(("fathom", *path.parent.relative_to(root).parts))
        assert repr(load(package, path.stem)) == repr(yaml.load(path.read_text(encoding="utf-8"), loader)), (
            path
        )
    assert len(paths) > 40
