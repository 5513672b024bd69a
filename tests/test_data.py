"""Data files load as PyYAML reads them."""

import sys
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from fathom import data


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The folder in which Python keeps what it has compiled."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "kept"))
    return tmp_path / "kept"


def test_every_data_file_has_the_value_that_yaml_gives_it(kept):
    root = Path(str(files("fathom")))
    paths = sorted(root.rglob("*.yaml"))
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for path in paths:
        package = ".".join(("fathom", *path.parent.relative_to(root).parts))
        value = repr(yaml.load(path.read_text(encoding="utf-8"), loader))
        assert repr(data.load(package, path.stem)) == repr(data.load(package, path.stem)) == value, path
    assert len(paths) == len([*kept.rglob("*.yaml.*")]) > 40


def test_a_file_is_parsed_once_until_it_changes(tmp_path, monkeypatch, kept):
    parse, parsed = data.parse, []
    monkeypatch.setattr(data, "ROOT", tmp_path)
    monkeypatch.setattr(data, "parse", lambda text: parsed.append(text) or parse(text))
    file = tmp_path / "some" / "package" / "rows.yaml"
    file.parent.mkdir(parents=True)
    for text, count in (("a: 1", 1), ("a: 12", 12)):
        file.write_text(text)
        assert data.load("some.package", "rows") == data.load("some.package", "rows") == {"a": count}
        assert parsed.pop() == text and not parsed
    [compiled] = kept.rglob("rows.yaml.*")
    for damage in (b"", b"damaged", compiled.read_bytes()[:-1]):
        compiled.write_bytes(damage)
        assert data.load("some.package", "rows") == {"a": 12} and parsed.pop() == "a: 12"
