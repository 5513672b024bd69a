"""Lines of the program's calls, where torch kept a name of code that has been freed."""

from __future__ import annotations

from types import SimpleNamespace

from fathom.probe.kineto import call_lines


class Frame(SimpleNamespace):
    """A frame as torch gives it: its names are decoded when they are read."""

    @property
    def file_name(self) -> str:
        return self.file.decode()


def event(file: bytes, line: int, *children: SimpleNamespace) -> SimpleNamespace:
    frame = Frame(file=file, function_name="train", line_number=line)
    fields = SimpleNamespace(caller=frame, callsite=None)
    return SimpleNamespace(start_time_ns=line, extra_fields=fields, children=list(children))


def test_names_of_freed_code_are_left_out_and_the_others_kept():
    freed = event(b"\xdb\xdb", 2, event(b"/home/me/train.py", 3), event(b"\x00\x01", 4))
    tree = [event(b"/home/me/train.py", 1, freed)]
    result = SimpleNamespace(experimental_event_tree=lambda: tree)
    assert [(row[1], row[3]) for row in call_lines(result)] == [
        ("/home/me/train.py", 1),
        ("/home/me/train.py", 3),
    ]
