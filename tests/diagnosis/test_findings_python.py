"""Python that takes too long: its own instructions, and not native code that it waits for."""

from __future__ import annotations

import polars as pl
import pytest

from fathom.analysis.results import Claim, LedgerRow
from fathom.diagnosis.engine.claims import Sized, disjoint
from fathom.diagnosis.engine.findings import findings
from fathom.diagnosis.rules import Candidate, rules
from fathom.diagnosis.signals import HostLine, Signals
from fathom.diagnosis.signals.lines import _dwells, dwell_us
from fathom.sounding import import_traces
from tests.support.findings_fakes import raised, signals
from tests.support.findings_read import read


def line(function: str, ms: float, own: float = 1.0, dwell_us: float | None = None) -> HostLine:
    return HostLine("idle: python", f"{function} (sim.py:7)", ms, function, "/sim.py:7", own, dwell_us)


def plain(*lines: HostLine, **more) -> Signals:
    ledger = [LedgerRow("idle: python", item.detail, item.ms) for item in lines]
    return signals(ledger, step_device="cpu", host_ops={}, host_lines=list(lines), **more)


def test_without_ops_python_is_found_where_its_instructions_are_short():
    loop, arrays = line("loop", 60.0, own=0.2, dwell_us=3.0), line("arrays", 40.0, dwell_us=900.0)
    (result,) = raised(plain(loop, arrays), "host-python").values()
    assert result.source == "/sim.py:7" and result.gain_ms == pytest.approx(0.9 * 60.0)
    assert [claim.detail for claim in result.claims] == ["loop (sim.py:7)"]
    assert not raised(plain(arrays), "host-python")


def test_short_functions_count_with_the_only_function_that_calls_them():
    """`add` takes less than LONG of the step itself; `log` is called from elsewhere too."""
    known = {"step_device": "cpu", "step_mean_ms": 1000.0, "host_ops": {"aten::mm": 12.0}}
    lines = [
        HostLine(
            "idle: python", "tokenize (run.py:3)", 60.0, "tokenize", "/run.py:3", 1.0, caller="main (/run.py"
        ),
        HostLine("idle: python", "add (run.py:9)", 30.0, "add", "/run.py:9", 1.0, caller="tokenize (/run.py"),
        HostLine("idle: python", "log (run.py:20)", 20.0, "log", "/run.py:20", 1.0),
    ]
    rows = [LedgerRow("ops", "aten::mm", 890.0)] + [LedgerRow(x.entry, x.detail, x.ms) for x in lines]
    result = raised(signals(rows, **known, host_lines=lines), "host-python")["host-python"]
    assert result.gain_ms == pytest.approx(0.9 * 90.0) and result.source == "/run.py:3"
    assert [claim.detail for claim in result.claims] == ["tokenize (run.py:3)", "add (run.py:9)"]


def test_without_ops_nothing_is_said_of_python_whose_pace_is_not_known():
    given = plain(line("loop", 60.0))
    result, abstained = findings(given, [rule for rule in rules() if "host-python" in rule.kinds])
    assert not result and "instruction" in abstained[0].why


def test_lines_that_wait_for_native_code_are_no_python_between_ops():
    known = {"step_device": "cpu", "step_mean_ms": 100.0, "host_ops": {"aten::mm": 12.0}}
    lines = [line("loop", 30.0, dwell_us=2.0), line("arrays", 40.0, dwell_us=500.0)]
    ledger = [
        LedgerRow("ops", "aten::mm", 30.0),
        *(LedgerRow("idle: python", item.detail, item.ms) for item in lines),
    ]
    result = raised(signals(ledger, **known, host_lines=lines), "host-python")["host-python"]
    assert result.gain_ms == pytest.approx(0.9 * 30.0) and result.source == "/sim.py:7"


@pytest.mark.parametrize(("typical", "raises"), [(90.0, True), (4.0, False)])
def test_interruptions_by_other_programs_are_not_taken_for_python(typical, raises):
    ledger = [LedgerRow("ops", "aten::mm", 30.0), LedgerRow("idle: python", "", 70.0)]
    given = signals(
        ledger,
        step_device="cpu",
        step_mean_ms=100.0,
        step_typical_ms=typical,
        host_ops={"aten::mm": 12.0},
        host_lines=[],
        communication_contended=True,
    )
    result, abstained = findings(given, [rule for rule in rules() if "host-python" in rule.kinds])
    assert bool(result) == raises
    assert any("other programs" in entry.why for entry in abstained) == (not raises)


@pytest.mark.parametrize(
    ("clean", "gain"),
    [
        ({}, 63.0),
        ({("idle: python", ""): 40.0}, 36.0),
        ({("idle: python", ""): 20.0, ("ops", "aten::mm"): 30.0}, 0),
    ],
)
def test_python_of_longer_profiled_steps_gains_no_more_than_clean_steps_have(clean, gain):
    ledger = [LedgerRow("ops", "aten::mm", 30.0), LedgerRow("idle: python", "", 70.0)]
    known = {"step_device": "cpu", "step_mean_ms": 100.0, "host_ops": {"aten::mm": 12.0}, "host_lines": []}
    results = raised(signals(ledger, **known, step_clean_ledger=clean), "host-python").values()
    assert [result.gain_ms for result in results] == ([pytest.approx(gain)] if gain else [])


@pytest.mark.parametrize(("called", "gain"), [(1000.0, 0.9 * 70), (4000.0, 70 - 20), (12_000.0, 0)])
def test_python_that_calls_ops_is_no_work_of_the_program(called, gain):
    """Each call of an op takes some microseconds of Python, which no other code saves."""
    ledger = [LedgerRow("ops", "aten::mm", 30.0), LedgerRow("idle: python", "", 70.0)]
    known = {"step_device": "cpu", "step_mean_ms": 100.0, "host_ops": {"aten::mm": 12.0}, "host_lines": []}
    results = raised(signals(ledger, **known, host_called_ops=called), "host-python").values()
    assert [result.gain_ms for result in results] == ([pytest.approx(gain)] if gain else [])


def test_a_line_that_only_calls_libraries_is_named_where_there_is_no_other():
    known = {"step_device": "cpu", "step_mean_ms": 100.0, "host_ops": {"aten::mm": 12.0}}
    calls = HostLine("idle: python", "log (run.py:3)", 60.0, "log", "/run.py:3", 0.0)
    ledger = [LedgerRow("ops", "aten::mm", 40.0), LedgerRow("idle: python", calls.detail, 60.0)]
    result = raised(signals(ledger, **known, host_lines=[calls]), "host-python")["host-python"]
    assert result.source == "/run.py:3"


@pytest.mark.parametrize(
    ("calls", "ms", "raises"), [(9000.0, 60.0, True), (900.0, 60.0, False), (9000.0, 30.0, False)]
)
def test_very_many_calls_of_ops_with_hardly_any_work_are_found(calls, ms, raises):
    known = {"step_device": "cpu", "step_mean_ms": 100.0, "host_lines": [], "host_ops": {"aten::add": calls}}
    known = {
        "step_device": "cpu",
        "step_mean_ms": 100.0,
        "host_lines": [],
        "host_ops": {"aten::add": 2 * calls},
    }
    ledger = [LedgerRow("ops", "aten::add", ms, count=calls), LedgerRow("unattributed", "", 100.0 - ms)]
    results = raised(signals(ledger, **known), "host-python").values()
    assert bool(results) == raises
    assert all(finding.unpredicted and finding.gain_ms is None for finding in results)
    assert all(finding.evidence[0].value == calls for finding in results)  # as in the ledger


@pytest.mark.parametrize(("called", "raises"), [(500.0, True), (50.0, False)])
def test_very_many_calls_inside_a_few_library_ops_are_no_loop_of_the_program(called, raises):
    known = {"step_device": "cpu", "step_mean_ms": 100.0, "host_lines": [], "host_ops": {"aten::gru": 1.0}}
    ledger = [LedgerRow("ops", "aten::mm", 60.0, count=9000.0), LedgerRow("unattributed", "", 40.0)]
    assert bool(raised(signals(ledger, **known, host_called_ops=called), "host-python")) == raises


def traced(program, folder):
    from torch.profiler import ProfilerActivity, profile, record_function

    with profile(activities=[ProfilerActivity.CPU]) as recording:
        for number in range(3):
            with record_function(f"ProfilerStep#{number}"):
                program()
    recording.export_chrome_trace(str(folder / "trace.json"))
    import_traces([folder / "trace.json"], folder / "trace.fathom")
    return read(folder / "trace.fathom")


def test_ops_that_an_op_calls_in_its_loop_or_backward_pass_are_not_called_by_the_program(tmp_path):
    torch = pytest.importorskip("torch")
    rnn, x = torch.nn.GRU(4, 4), torch.randn(50, 2, 4)
    seen = traced(lambda: rnn(x)[0].sum().backward(), tmp_path)
    assert sum(seen["host.ops"].values()) > 500 and seen["host.called_ops"] < 20


def test_ops_that_the_program_calls_in_a_loop_are_its_own_also_in_regions(tmp_path):
    torch = pytest.importorskip("torch")
    x = torch.ones(4)

    def loop():
        with torch.profiler.record_function("loop"):
            for _ in range(50):
                x.mul(2).cumsum(0)

    assert traced(loop, tmp_path)["host.called_ops"] == 100


def test_calls_with_hardly_any_work_are_claimed_and_take_no_time_from_other_causes():
    work = {"flops_per_s": 1e6, "bytes_per_s": 1e7}
    ledger = [
        LedgerRow("ops", "aten::add", 40.0, count=8000.0, **work),
        LedgerRow("ops", "aten::mm", 20.0, count=1000.0, flops_per_s=1e10, bytes_per_s=1e9),
        LedgerRow("unattributed", "", 40.0),
    ]
    known = {"step_device": "cpu", "step_mean_ms": 100.0, "host_lines": [], "host_ops": {"aten::add": 8000.0}}
    (many,) = raised(signals(ledger, **known), "host-python").values()
    assert [(claim.detail, claim.ms) for claim in many.claims] == [("aten::add", 40.0)]
    other = Candidate("host-autograd", [Claim("ops", "aten::add", 30.0)], [], gain_ms=30.0)
    first, second = disjoint([Sized(many, None), Sized(other, 30.0)], {("ops", "aten::add"): 40.0}, 1.0)
    assert (first.candidate.kind, first.ms) == ("host-autograd", 30.0)
    assert [claim.ms for claim in second.candidate.claims] == [10.0]


@pytest.mark.parametrize(("moved", "expected"), [(1, 2000.0), (50, 43.3), (99, 7.2)])
def test_how_long_python_stays_is_estimated_from_how_often_it_went_on(moved, expected):
    """Reads 30 µs apart; what leaves at a constant rate is gone at the second with 1 - exp(-30 / dwell)."""
    assert dwell_us(moved, 100, 30.0) == pytest.approx(expected, rel=0.1)
    assert dwell_us(moved // 4, 25, 30.0) == pytest.approx(expected, rel=0.7)


def looks(on_processor):
    count = len(on_processor)
    return pl.DataFrame(
        {
            "time_ns": [i * 10**6 for i in range(count)],
            "function": ["encode"] * count,
            "source": ["/sim.py:7"] * count,
            "moved": [i % 2 == 0 for i in range(count)],
            "apart_ns": [40_000] * count,
            "on_processor": pl.Series(on_processor, dtype=pl.Float32),
        }
    )


@pytest.mark.parametrize("share", [0.09, None, 1.0])
def test_looks_without_counted_time_are_on_a_host_as_busy_as_before(share):
    """The kernel counts time at ticks and switches, so a waiting thread has none, nor one between ticks."""
    known = _dwells(looks([share, *[None] * 9]), pl.col("source"), 6)
    assert (("encode", "/sim.py:7") in known) is (share != 0.09)


@pytest.mark.parametrize(("dwell", "doubt"), [(3.0, 0.3), (None, 1.0)])
def test_the_gain_is_in_doubt_if_a_function_may_wait_for_native_code(dwell, doubt):
    known = {"step_device": "cpu", "step_mean_ms": 100.0, "host_ops": {"aten::mm": 12.0}}
    own = line("encode", 10.0, dwell_us=dwell)
    rows = [LedgerRow("ops", "aten::mm", 90.0), LedgerRow(own.entry, own.detail, own.ms)]
    result = raised(signals(rows, **known, host_lines=[own]), "host-python")["host-python"]
    assert (result.gain_ms, result.doubt) == (pytest.approx(9.0), doubt)
