"""The parts of a batch's fetch: decoding, user code, waits for a processor, reading."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
import types
import zlib

import pytest

from fathom.probe.hooks.patches import Patches
from fathom.probe.hooks.reading import Decoding, _watch, read, read_since, ready, ready_since, used


def test_only_decoding_inside_a_fetch_counts_and_nested_decoders_once():
    module, decoding, patches = types.ModuleType("decoder"), Decoding(), Patches()
    inner = types.SimpleNamespace()

    class Picture:
        def load(self) -> str:
            time.sleep(0.02)
            return inner.decompress(self)

    module.Picture = Picture
    module.decompress = inner.decompress = lambda _: time.sleep(0.02) or "pixels"
    _watch(patches, decoding, ("Picture.load", "decompress", "missing", "Missing.load"), module)
    inner.decompress = module.decompress
    assert Picture().load() == "pixels" and decoding.ns is None
    decoding.ns, start = 0, time.perf_counter_ns()
    Picture().load()
    assert 40_000_000 <= decoding.ns <= time.perf_counter_ns() - start
    wrapped = module.decompress
    patches.undo()
    assert module.decompress is not wrapped and "load" in vars(Picture)


def test_a_decoder_that_fails_still_raises_its_own_error():
    module, decoding, patches = types.ModuleType("decoder"), Decoding(), Patches()
    module.decompress = zlib.decompress
    _watch(patches, decoding, ("decompress",), module)
    decoding.ns = 0
    with pytest.raises(zlib.error):
        module.decompress(b"no stream")
    assert decoding.ns > 0 and decoding.depth == 0


def test_bytes_of_files_are_counted_and_sleep_has_none(tmp_path):
    before = read()
    if before is None:
        pytest.skip("this system does not tell what a thread read")
    time.sleep(0.02)
    assert read_since(before) < 10_000  # its own account is a file, too
    (tmp_path / "data").write_bytes(bytes(300_000))
    before = read()
    (tmp_path / "data").read_bytes()
    assert 300_000 <= read_since(before) < 400_000


def test_an_account_that_cannot_be_read_or_is_incomplete_counts_nothing(tmp_path, monkeypatch):
    for text in (None, "", "rchar: 3\n", "rchar: x\nread_bytes: 1\n", "nonsense\n"):
        account = tmp_path / "io"
        if text is not None:
            account.write_text(text)
        monkeypatch.setattr("fathom.probe.hooks.reading.ACCOUNT", str(account))
        assert read() is None and read_since((1, 2)) is None
    assert read_since(None) is None


def clocks() -> tuple[int, int]:
    """Return the time and the time that this thread ran, in ns."""
    return time.perf_counter_ns(), time.thread_time_ns()


def test_a_processor_that_another_process_takes_is_waited_for():
    """On one processor the time that a thread which never sleeps does not run is the time that it waits."""
    if ready() is None:
        pytest.skip("this system does not tell how long a thread waits for a processor")
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(everywhere)})
    other = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=-1)
    try:
        other.stdout.readline()
        outer, inner, before = clocks(), clocks(), ready()
        while time.perf_counter_ns() < inner[0] + 300_000_000:
            pass
        waited, after, end = ready_since(before), clocks(), clocks()
    finally:
        os.sched_setaffinity(0, everywhere)
        other.kill()
        other.communicate()
    least, ran = after[0] - inner[0], after[1] - inner[1]
    took, most_ran = end[0] - outer[0], end[1] - outer[1]  # of a period before and after that one
    assert 0 < waited <= took and least - most_ran - 0.2 * took <= waited <= took - ran + 0.2 * took


@pytest.mark.parametrize("text", [None, "", "12 5", "0 0 0\n", "nonsense\n", "1 x 3\n"])
def test_a_kernel_without_wait_accounting_reports_none(tmp_path, monkeypatch, text):
    account, known = tmp_path / "schedstat", used() is not None
    if text is not None:
        account.write_text(text)
    monkeypatch.setattr("fathom.probe.hooks.reading.SCHEDULER", str(account))
    assert ready() is None and ready_since(1) is None and (used() is not None) == known
    account.write_text("7 5 1\n")
    assert ready() == 5 and ready_since(3) == 2 and ready_since(None) is None


def test_sleeping_is_not_using_the_processor():
    before, start = used(), time.perf_counter_ns()
    if before is None:
        pytest.skip("this system does not tell what a thread used")
    time.sleep(0.2)
    after, took = used(), time.perf_counter_ns() - start
    tick = 20_000_000  # kernel time is counted in ticks of up to 10 ms, before and after
    assert after is not None and -tick <= after - before <= took - 200_000_000 + tick


def test_computing_for_less_than_a_tick_is_using_the_processor():
    if used() is None:
        pytest.skip("this system does not tell what a thread used")
    result = []
    for _ in range(21):
        before, until = used(), time.perf_counter_ns() + 500_000
        while time.perf_counter_ns() < until:  # thread_time_ns would be time in the kernel
            pass
        result.append(used() - before)
    assert statistics.median(result) >= 400_000
