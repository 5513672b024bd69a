"""The check of words catches its samples, and nothing else, in strings, docstrings, comments and names."""

import importlib.util
import sys

import pytest
import tomllib

from tests.support.paths import ROOT

SPEC = importlib.util.spec_from_file_location("words", ROOT / "tools" / "words.py")
words = importlib.util.module_from_spec(SPEC)
sys.modules["words"] = words
SPEC.loader.exec_module(words)

LISTED = tomllib.loads(words.LIST.read_text(encoding="utf-8"))
PHRASES, NAMES = words.rules()


@pytest.mark.parametrize("number", range(len(PHRASES)), ids=lambda n: LISTED["phrase"][n]["caught"][0])
def test_a_phrase_is_caught_in_its_samples_alone(number, tmp_path):
    row, file = LISTED["phrase"][number], tmp_path / "sample.py"
    for samples, expected in ((row["caught"], True), (row["fine"], False)):
        for sample in samples:
            file.write_text(f'"""{sample}"""\n')
            assert bool(words.hits(file, [PHRASES[number]], [])) is expected, sample


@pytest.mark.parametrize("number", range(len(NAMES)), ids=lambda n: LISTED["name"][n]["caught"][0])
def test_a_name_is_caught_in_its_samples_alone(number):
    row = LISTED["name"][number]
    assert [name for name in row["caught"] if not NAMES[number].matches(name)] == []
    assert [name for name in row["fine"] if NAMES[number].matches(name)] == []


def test_every_part_of_a_module_is_read(tmp_path):
    file = tmp_path / "lull.py"
    file.write_text(
        '"""What it is."""\n'
        "# steps are told\n"
        "# by their marks\n"
        'text = "a step is " "told by its mark"\n'
        'other = f"{text} tells nothing"\n'
        "def telling(held): return [held for one in held]\n"
    )
    lines = [hit.line for hit in words.hits(file, PHRASES, NAMES)]
    assert set(lines) == {1, 2, 4, 5, 6}
    assert lines.count(1) == 2  # the file's name, too
    assert lines.count(6) == 3


def test_a_mark_excuses_its_own_line_and_the_next(tmp_path):
    file = tmp_path / "sample.py"
    file.write_text('a = "told by b"  # words: ok\nfound = 1\nb = 2\nfound = 3\n')
    assert [hit.line for hit in words.hits(file, PHRASES, NAMES)] == [4]


def test_code_in_a_document_is_no_prose(tmp_path):
    file = tmp_path / "page.md"
    file.write_text("`told by`\n\n```python\nfound = 'told by'\n```\n\nIt is told\nby name.\n")
    assert {hit.line for hit in words.hits(file, PHRASES, NAMES)} == {7}


def test_what_is_still_to_be_rewritten_exists():
    files = LISTED["files"]
    gone = [name for name in files["phrases_later"] + files["names_later"] if not words._listed([name])]
    assert gone == []


def test_the_command_names_the_place(tmp_path, capsys):
    file = tmp_path / "page.md"
    file.write_text("Kernels are told apart by shape.\n")
    assert words.main([str(file)]) == 1
    assert f'{file}:1: "told apart": write distinguish' in capsys.readouterr().out
    file.write_text("Kernels differ in shape.\n")
    assert words.main([str(file)]) == 0
