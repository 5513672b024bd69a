"""The line that says what takes long: on a terminal alone, late, and gone afterwards."""

from __future__ import annotations

import io

from fathom.cli.progress import PATIENT_S, count, waiting


def said(waits: int) -> tuple[str, list[float]]:
    """The output if the work ends in the `waits`-th wait, and the length of each wait."""
    asked: list[float] = []
    stream = io.StringIO()

    def over(seconds: float) -> bool:
        asked.append(seconds)
        return len(asked) == waits

    count("importing t.json", stream, over, lambda: sum(asked))
    return stream.getvalue(), asked


def test_what_is_done_at_once_says_nothing():
    assert said(1) == ("", [PATIENT_S])


def test_a_long_one_counts_seconds_and_leaves_no_line():
    text, asked = said(3)
    assert asked == [PATIENT_S, 1.0, 1.0]
    assert text.split("\r")[1:3] == ["fathom: importing t.json, 2 s", "fathom: importing t.json, 3 s"]
    assert text.endswith("\r\x1b[K")


def test_nothing_is_written_where_there_is_no_terminal():
    stream = io.StringIO()
    with waiting("importing t.json", stream):
        pass
    assert stream.getvalue() == ""


def test_a_terminal_that_is_not_kept_waiting_stays_clean():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with waiting("importing t.json", stream):
        pass
    assert stream.getvalue() == ""
