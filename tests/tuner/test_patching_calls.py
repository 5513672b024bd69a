"""Calls of any layout get the arguments of a setting and keep all others, or are refused with a reason."""

from __future__ import annotations

import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.tuner.patching.source import RefusedError
from fathom.tuner.patching.writing import written
from tests.tuner.traced import POSITIONAL, Traced, apply

OPTIONS = {"num_workers": 3, "persistent_workers": True, "prefetch_factor": 8}
EXPRESSIONS = (
    "7",
    "(4)",
    "'é, ) ü'",
    "f'{1}, )'",
    "len('ß(')",
    "(lambda a, b=2: b)(1)",
    "dict(a=[1, (2)])['a']",
    "[x for x in (1, 2)]",
    "None if False else 5",
    '"""two\nlines, ("""',
)
SEPARATORS = (" ", "", "\n        ", "  # a comment, (\n\t", "\n\n    # é\n    ")
AROUND = (
    "loader = {}",
    "x = [DataLoader('other'), {}, DataLoader('third', 2)]",
    "def make(n=1):\n\treturn {}\nmake()",
    "class Trainer:\n    def __init__(self):\n        self.loader = {}  # é\nTrainer()",
    "x = [{} for _ in range(2)]",
    "x = (lambda: {})()",
    "if True:\n  if (y := {}): pass",
    "name = 'ü'; x = {}; z = 1",
    "print(repr({}), end='')",
)


@st.composite
def calls(draw: st.DrawFn) -> str:
    """Texts of calls with any arguments in any layout."""
    separator = st.sampled_from(SEPARATORS)
    count = draw(st.integers(1, len(POSITIONAL)))
    words = [draw(st.sampled_from(EXPRESSIONS)) for _ in range(count)]
    rest = [*POSITIONAL[count:], "prefetch_factor", "persistent_workers"]
    for name in draw(st.lists(st.sampled_from(rest), unique=True)):
        words.append(f"{name}{draw(st.sampled_from((' = ', '=')))}{draw(st.sampled_from(EXPRESSIONS))}")
    text = f"DataLoader({draw(separator)}"
    for number, word in enumerate(words):
        comma = "," if number + 1 < len(words) or draw(st.booleans()) else ""
        text += f"{word}{draw(st.sampled_from(('', ' ')))}{comma}{draw(separator)}"
    return text + ")"


def options_of(loader: dict[str, Any]) -> dict[str, Any]:
    return {name: loader[name] for name in OPTIONS}


@settings(max_examples=150, deadline=None)
@given(calls(), st.sampled_from(AROUND), st.booleans(), st.booleans(), st.booleans())
def test_any_layout(call: str, around: str, crlf: bool, ended: bool, with_git: bool) -> None:
    text = around.format(call) + ("\n" if ended else "")
    data = text.replace("\n", "\r\n").encode() if crlf else text.encode()
    with tempfile.TemporaryDirectory() as folder:
        before = Traced(Path(folder)).run(data)
        program = before.program()
        changed = apply(program, written(program, {"loader": OPTIONS}), with_git)
        assert changed.count(b"\r\n") == (changed.count(b"\n") if b"\r\n" in data else 0)
        after = Traced(Path(folder)).run(changed)
    assert len(after.loaders) == len(before.loaders)
    for old, new in zip(before.loaders, after.loaders, strict=True):
        assert new == old | OPTIONS
    assert changed.endswith(b"\n") == data.endswith(b"\n")


@settings(max_examples=40, deadline=None)
@given(calls())
def test_without_workers_the_options_of_workers_go(call: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        before = Traced(Path(folder)).run(
            f"num_workers = 4\nDataLoader('data', 2, num_workers=2)\nx = {call}".encode()
        )
        program = before.program()
        after = Traced(Path(folder)).run(apply(program, written(program, {"loader": {"num_workers": 0}})))
    for old, new in zip(before.loaders, after.loaders, strict=True):
        if old["num_workers"] != 0:
            assert options_of(new) == {"num_workers": 0, "persistent_workers": False, "prefetch_factor": None}
        rest = {name: value for name, value in old.items() if name not in OPTIONS}
        assert rest == {name: value for name, value in new.items() if name not in OPTIONS}


SHAPES = {
    "a subclass": """
        class Mine(DataLoader):
            pass
        Mine("data", 4)
        """,
    "a subclass with its own arguments": """
        class Mine(DataLoader):
            def __init__(self, data):
                super().__init__(data, num_workers=1)
        Mine("a"), Mine("b")
        """,
    "an alias": """
        Loader = DataLoader
        Loader("data")
        """,
    "a dotted name over two lines": """
        class data: pass
        data.DataLoader = DataLoader
        loader = (
            data
            .DataLoader("data",
                        num_workers=1)
        )
        """,
    "a function that makes several": """
        def make(data, **others):
            return DataLoader(data)
        make("train"), make("test", shuffle=True)
        """,
    "two in a line": """
        a, b = DataLoader("a"), DataLoader("b", num_workers=3)
        """,
    "a value that a setting repeats": """
        workers = 3
        DataLoader("data", num_workers=workers, persistent_workers=True)
        """,
    "a stream beside it stays": """
        DataLoader("data"); loader = DataLoader("stream")
        """,
}


@pytest.mark.parametrize("text", SHAPES.values(), ids=list(SHAPES))
@pytest.mark.parametrize("with_git", [True, False])
def test_shapes_of_programs(text: str, with_git: bool, tmp_path: Path) -> None:
    before = Traced(tmp_path).run(textwrap.dedent(text).encode())
    program = before.program()
    after = Traced(tmp_path).run(apply(program, written(program, {"loader": OPTIONS}), with_git))
    for old, new in zip(before.loaders, after.loaders, strict=True):
        assert new == (old if old["dataset"] == "stream" else old | OPTIONS)


UNCERTAIN = ("an alias", "two in a line", "a stream beside it stays")  # without columns


@pytest.mark.parametrize("name", [name for name in SHAPES if name not in UNCERTAIN])
def test_shapes_of_programs_whose_columns_are_unknown(name: str, tmp_path: Path) -> None:
    before = Traced(tmp_path).run(textwrap.dedent(SHAPES[name]).encode())
    program = before.without_columns().program()
    after = Traced(tmp_path).run(apply(program, written(program, {"loader": OPTIONS})))
    assert all(new == old | OPTIONS for old, new in zip(before.loaders, after.loaders, strict=True))


@pytest.mark.parametrize("name", UNCERTAIN)
def test_calls_whose_columns_are_unknown_are_refused(name: str, tmp_path: Path) -> None:
    program = Traced(tmp_path).run(textwrap.dedent(SHAPES[name]).encode()).without_columns().program()
    with pytest.raises(RefusedError, match=r"cannot be identified|IterableDataset"):
        written(program, {"loader": OPTIONS})


REFUSED = {
    "**options": """
        options = {"batch_size": 4}
        DataLoader("data", **options)
        """,
    "*arguments": """
        arguments = ["data", 4]
        DataLoader(*arguments)
        """,
    "under another name": """
        for kind in (DataLoader,):
            kind("data")
        """,
    " under another name": """
        list(map(DataLoader, ["a", "b"]))
        """,
    "  under another name": """
        from functools import partial
        make = partial(DataLoader, batch_size=4)
        make("data")
        """,
    "IterableDataset": """
        def make(data):
            return DataLoader(data)
        make("stream"), make("data")
        """,
}


@pytest.mark.parametrize(("reason", "text"), REFUSED.items())
def test_uncertain_calls_are_refused(reason: str, text: str, tmp_path: Path) -> None:
    program = Traced(tmp_path).run(textwrap.dedent(text).encode()).program()
    with pytest.raises(RefusedError) as refused:
        written(program, {"loader": OPTIONS})
    assert reason.strip() in str(refused.value)


def test_a_source_that_changed_is_refused(tmp_path: Path) -> None:
    program = Traced(tmp_path).run(b"DataLoader('data')\n").program()
    (tmp_path / "train.py").write_bytes(b"DataLoader('Data')\n")
    with pytest.raises(RefusedError, match=r"train\.py has changed since the program ran"):
        written(program, {"loader": OPTIONS})


def test_another_encoding_is_refused(tmp_path: Path) -> None:
    program = Traced(tmp_path).run("# coding: latin-1\nDataLoader('é')\n".encode("latin-1")).program()
    with pytest.raises(RefusedError, match="UTF-8"):
        written(program, {"loader": OPTIONS})


@pytest.mark.parametrize("place", ["lib/site-packages/them.py", ".venv/them.py"])
def test_packages_are_left_alone(place: str, tmp_path: Path) -> None:
    program = Traced(tmp_path, place).run(b"DataLoader('data')\n").program()
    with pytest.raises(RefusedError, match="installed package"):
        written(program, {"loader": OPTIONS})


@pytest.mark.parametrize("name", ["my train.py", "été.py", "sub folder/a.py"])
@pytest.mark.parametrize("with_git", [True, False])
def test_names_of_files(name: str, with_git: bool, tmp_path: Path) -> None:
    program = Traced(tmp_path, name).run(b"\xef\xbb\xbfDataLoader('data')").program()
    changed = apply(program, written(program, {"loader": {"num_workers": 3}}), with_git)
    assert changed == b"\xef\xbb\xbfDataLoader('data', num_workers=3)"
