"""Records that were appended are read once, whatever the writer did in between."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fathom.watch.following import Follower

LINES = st.lists(st.dictionaries(st.text(max_size=5), st.integers(-(2**53), 2**53), max_size=3), max_size=12)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=LINES, cuts=st.lists(st.integers(0, 400), max_size=6))
def test_every_record_is_read_once_wherever_writes_are_cut(tmp_path, records, cuts):
    path = tmp_path / "log.jsonl"
    path.unlink(missing_ok=True)
    follower, read = Follower(path), list(Follower(path).records())
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    for start, end in zip([0, *ends], ends, strict=False):
        with path.open("ab") as file:
            file.write(data[start:end])
        read += follower.records()
    assert read == records and follower.torn == 0


def test_damaged_lines_are_counted_and_left_out(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":\n\xff\xfe\n[1]\n\n{"a":2}\n{"torn')
    follower = Follower(path)
    assert list(follower.records()) == [{"a": 1}, {"a": 2}]
    assert follower.torn == 3


def test_a_replaced_file_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"a":1}\n{"a":2}\n')
    follower = Follower(path)
    list(follower.records())
    assert not follower.restarted
    new = tmp_path / "new"
    new.write_text('{"a":3}\n{"a":4}\n{"a":5}\n')
    new.replace(path)
    assert [record["a"] for record in follower.records()] == [3, 4, 5] and follower.restarted


def test_a_file_that_disappears_has_no_new_records(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"a":1}\n')
    follower = Follower(path)
    assert len(list(follower.records())) == 1
    path.unlink()
    assert list(follower.records()) == []
