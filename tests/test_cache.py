"""The user's cache: whole entries or none, bounded, and off where it is switched off."""

from __future__ import annotations

import os
import stat

import pytest

import fathom
from fathom import cache, diagnosis
from tests.support.timelines import Timeline, store_of

MS, S = 1_000_000, 1_000_000_000


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("FATHOM_NO_CACHE", raising=False)
    monkeypatch.setenv("FATHOM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_is_kept_is_read_again_and_other_parts_are_another_key():
    name = cache.key("thing", b"content", "option", None)
    assert cache.read(name) is None
    cache.write(name, b"result")
    assert cache.read(name) == b"result"
    others = [cache.key("thing", b"contentoption", None), cache.key("thing", b"content", "other", None)]
    assert name not in others and all(cache.read(other) is None for other in others)


def test_an_entry_that_was_damaged_or_cut_is_none(folder):
    name = cache.key("thing", b"x")
    for harm in (lambda data: data[:-1], lambda data: data[:2], lambda data: data[:-1] + b"?"):
        cache.write(name, b"result")
        (file,) = folder.iterdir()
        file.write_bytes(harm(file.read_bytes()))
        assert cache.read(name) is None and not list(folder.iterdir())


def test_what_was_used_longest_ago_goes_first(folder, monkeypatch):
    monkeypatch.setattr(cache, "MOST_BYTES", 260)
    for number, name in enumerate(("old", "used", "new")):
        cache.write(name, b"x" * 80)
        os.utime(folder / (name + cache.ENDING), (number, number))
    assert cache.read("old") is not None  # it was used just now
    cache.write("newest", b"x" * 80)
    assert sorted(file.name for file in folder.iterdir()) == ["new.kept", "newest.kept", "old.kept"]


def test_a_folder_that_cannot_be_written_is_no_error(folder, monkeypatch):
    folder.parent.joinpath("file").write_text("")
    monkeypatch.setenv("FATHOM_CACHE_DIR", str(folder.parent / "file" / "below"))
    cache.write("name", b"data")
    assert cache.read("name") is None


def test_it_can_be_switched_off(folder, monkeypatch):
    monkeypatch.setenv("FATHOM_NO_CACHE", "1")
    cache.write("name", b"data")
    assert cache.read("name") is None and not folder.exists()


def program() -> Timeline:
    made = Timeline()
    made.phase = "clean"
    for number in range(10):
        made.step(10 * S + number * 10 * MS, 10 * S + (number + 1) * 10 * MS)
    made.phase, made.burst = "timeline", 1
    made.step(20 * S, 20 * S + 12 * MS)
    made.kernel(20 * S + 4 * MS, 20 * S + 12 * MS, launched=20 * S + 3 * MS)
    return made


def test_a_sounding_is_examined_once(tmp_path, folder, monkeypatch):
    path = tmp_path / "s.fathom"
    store_of(path, program())
    first = fathom.open(path).examine()
    (entry,) = folder.iterdir()
    monkeypatch.setattr(diagnosis, "examine", None)  # cannot be called
    assert fathom.open(path).examine() == first
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600


def test_a_sounding_whose_tables_changed_is_examined_again(tmp_path, folder):
    path = tmp_path / "s.fathom"
    store_of(path, program())
    fathom.open(path).examine()
    table = path / "rank-0" / "kernels.parquet"
    table.write_bytes(table.read_bytes()[:-9] + b"123456789")
    with pytest.raises(fathom.FathomError, match="damaged"):
        fathom.open(path).examine()
