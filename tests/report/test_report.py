"""The report says what the Examination holds, in order, in 40 to 120 columns, on any terminal."""

from __future__ import annotations

import json
import re
from io import BytesIO, StringIO, TextIOWrapper

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fathom.analysis.communication import Communication, Jitter
from fathom.analysis.results import (
    Abstained,
    Claim,
    CodeTime,
    Evidence,
    Finding,
    FunctionTime,
    LedgerRow,
    LongSteps,
    Place,
    SlowStep,
    Step,
    Where,
    label_of,
)
from fathom.api import Sounding
from fathom.diagnosis.kinds import kinds_of_steps
from fathom.errors import BadInputError
from fathom.report import print_kernels, print_prediction, print_report, save_picture
from fathom.report.findings import claims, print_findings, shown
from fathom.report.ledger import fold, groups
from fathom.report.table import rows
from fathom.report.units import apportion, bar
from tests.support.examined import imported, on_trace
from tests.support.paths import TRACES
from tests.support.report_samples import damaged, device, gpu, work


def text(examination, width=100, **options):
    out = StringIO()
    print_report(examination, Console(file=out, width=width, force_terminal=True, no_color=True), **options)
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())


@pytest.mark.parametrize("width", [40, 60, 80, 96, 100, 120])
def test_every_line_fits(width):
    for examination in (gpu(), damaged(), gpu(devices=[device(0), device(1)])):
        assert max(map(len, text(examination, width).splitlines())) <= width


def test_tiny_and_huge_terminals_get_40_and_120_columns():
    assert text(gpu(), 10).count("\n") > text(gpu(), 40).count("\n")  # folded
    assert max(map(len, text(gpu(), 300).splitlines())) <= 120


def test_the_headline_names_command_machine_and_step():
    page = text(gpu())
    for part in (
        "python examples/train_gpt.py --steps 600",
        "NVIDIA H200",
        "torch 2.11.0",
        "38.2 ms",
        "n = 40",
    ):
        assert part in page
    assert "26.2 steps/s · 172k tokens/s" in page


def test_uneven_steps_show_their_mean_which_is_what_throughput_follows():
    uneven = gpu()
    uneven.step.clean_mean_ms = 50.0
    assert "mean 50.0 ms, n = 40)  20.0 steps/s" in text(uneven)
    assert "mean" not in text(gpu()).splitlines()[5]


def test_groups_add_up_to_the_step_that_is_printed():
    page = text(gpu())
    printed = [
        float(re.search(rf"^ {kind} +([\d.]+)", page, re.M)[1])
        for kind in ("compute", "communication", "copy", "idle")
    ]
    total = float(re.search(r"clean step +([\d.]+)", page)[1])
    assert sum(printed) == pytest.approx(total, abs=0.021)


@pytest.mark.parametrize("unattributed", [0.0, 4.5])
def test_columns_of_ranks_add_up_to_their_steps(unattributed):
    rest = [LedgerRow("unattributed", "clean steps took longer", unattributed)] if unattributed else []
    rows = [LedgerRow("compute", "gemm", 20.0), LedgerRow("idle: python", "", 3.0), *rest]
    page = text(gpu(devices=[device(0, rows), device(1, rows)]))
    lines = page[page.index(" rank  device") :].splitlines()
    for line in lines[1:3]:
        step, *parts = (float(cell) for cell in line.split("H200")[1].split())
        assert step == pytest.approx(sum(parts)) and len(parts) == 4 + len(rest)


@pytest.mark.parametrize("exposed_ms", [5.0, 8.9])
def test_waits_longer_than_the_collectives_of_a_host_are_explained(exposed_ms):
    waits = [LedgerRow("moving bytes", "", 4.0), LedgerRow("idle: waiting for peers", "", 5.0)]
    item = device(0, [LedgerRow("ops", "aten::mm", 20.0), *waits])
    item.device = "cpu"
    item.communication = Communication(exposed_ms, 0.0, exposed_ms, 0.0, 20.0, 0.0, [])
    explained = "the program waits 9.00 ms in the profiled step" in " ".join(
        text(gpu(devices=[item])).split()
    )
    assert explained == (exposed_ms < 8)


def test_rows_of_a_group_add_up_to_the_group():
    parts = re.findall(r"^   \S.*?  +([\d.]+) +[<\d.]+  [█▉▊▋▌▍▎▏ ]", text(gpu(), top=3), re.M)
    assert sum(map(float, parts)) == pytest.approx(38.2, abs=0.1)


def test_small_families_are_folded_and_all_unfolds_them():
    assert "20 other families" in text(gpu())
    everything = text(gpu(), top=None)
    assert "other families" not in everything
    assert "elementwise_7" in everything


def test_long_names_keep_their_beginning_and_launch_shape():
    line = next(line for line in text(gpu()).splitlines() if "cutlass" in line)
    assert line.strip().startswith("void cutlass")
    assert "… 64·128 " in line


def test_idle_causes_are_explained():
    line = next(line for line in text(gpu()).splitlines() if line.startswith("   input"))
    assert "no batch was ready" in line


def test_the_table_is_of_the_clean_step_and_the_profiled_one_is_a_line():
    page = text(gpu())
    clean, profiled = (
        float(re.search(rf"^ {label} +([\d.]+)", page, re.M)[1]) for label in ("clean step", "profiled step")
    )
    assert clean == pytest.approx(gpu().step.clean_ms, abs=0.01)
    assert profiled == pytest.approx(gpu().step.timeline_ms, abs=0.01)
    assert "  +2.9 " in next(line for line in page.splitlines() if "profiled step" in line)
    assert "step, as profiled" not in page and "dispatching" not in page


def test_the_profiled_ledger_is_printed_when_it_is_asked_for():
    page = text(gpu(), profiled=True)
    assert page.index("clean step  ") < page.index("   dispatching") < page.index("step, as profiled")


def test_inferred_rows_are_marked_and_the_mark_explained():
    item = device()
    assert not any("≈" in line.plain for line in rows(item, 100, 12))
    item.ledger[-4].inferred = True  # idle: python
    marked = [line.plain for line in rows(item, 100, 12) if "≈" in line.plain]
    assert [line.split()[0] for line in marked] == ["idle", "python", "≈"] and "≈6.2" in marked[1]


def test_device_work_that_the_clean_step_has_no_room_for_is_a_row():
    item = device(0, [work("a", 10.0, 1), LedgerRow("profiling overhead", "in device work", -2.0)])
    item.total_ms, item.observer_ms = 10.0, -2.0
    lines = [line.plain for line in rows(item, 100, 12)]
    (row,) = (line for line in lines if line.startswith("profiling overhead"))
    assert "-2.00" in row and any(line.startswith("clean step") and "8.00" in line for line in lines)


def test_the_mean_step_names_what_long_steps_hold():
    item = device()
    item.mean_ledger = [*item.ledger, LedgerRow("idle: checkpoint", "", 4.0)]
    (line,) = (line.plain for line in rows(item, 100, 12) if line.plain.startswith("mean step"))
    assert "checkpoint +4.00" in line and f"{sum(e.ms for e in item.mean_ledger):.2f}" in line


def test_the_mean_step_names_only_entries_that_fit():
    item = device()
    item.mean_ledger = [*item.ledger, *(LedgerRow(f"idle: {cause} {'x' * 12}", "", 4.0) for cause in "ab")]
    (line,) = (line.plain for line in rows(item, 100, 12) if line.plain.startswith("mean step"))
    assert "a xxxxxxxxxxxx +4.00" in line and "b x" not in line and len(line) <= 100


def test_a_second_does_not_lose_its_figures_on_a_narrow_terminal():
    uneven = gpu()
    uneven.step.clean_mean_ms, uneven.step.samples_per_s = 50.0, 437.0
    lines = text(uneven, 80).splitlines()
    assert any("n = 40)" in line for line in lines)
    assert "20.0 steps/s · 437 samples/s · 172k tokens/s" in "".join(lines)


def test_work_that_repeats_is_not_called_so_many_steps_a_second():
    page = text(gpu(step=Step(None, 4.2, None, 17, "step", "repetition")))
    assert "may be only part of a step" in page and "steps/s" not in page


def test_a_stretch_of_time_is_not_called_so_many_steps_a_second():
    page = text(gpu(step=Step(None, 5000.0, None, 1, "host", "host")))
    assert "not a step" in page and "steps/s" not in page


def test_without_findings_it_says_how_many_checks_ran():
    count = len(kinds_of_steps())
    none = text(gpu(findings=[], abstained=[Abstained("finding kernels-atomics", "no shapes")]))
    assert f"No known cause of lost time was found ({count - 1} of {count} checks ran)." in none
    assert "checks ran" not in text(gpu(findings=[], abstained=[]))


def of_code(*shares):
    file = "/home/me/train.py"
    lines = [
        [Place("f", f"{file}:7", share * 0.75), Place("f", f"{file}:9", share * 0.25)] for share in shares
    ]
    functions = [
        FunctionTime(f"f{i}", file, share, 0.01, 50.0 * share, lines[i]) for i, share in enumerate(shares)
    ]
    return CodeTime(0, "train", 400, 50.0, functions)


@pytest.mark.parametrize("width", [80, 100, 120])
def test_functions_of_the_program_have_their_part_of_the_mean_step_and_their_lines(width):
    page = text(gpu(findings=[], code=of_code(0.6, 0.32, 0.02)), width)
    first, second = [line for line in page.splitlines() if "(train.py)" in line]
    assert first.split()[:5] == ["f0", "(train.py)", "30.00", "60.0", "1.0"] and "7 45 % · 9 15 %" in first
    assert "7 24 % · 9 8 %" in second and "400 samples" in page
    assert "See below for the time of the program's own functions." in " ".join(page.split())
    assert max(map(len, page.splitlines())) <= width


def test_all_shows_small_functions_too():
    page = text(gpu(code=of_code(0.6, 0.32, 0.02)), top=None)
    assert "f2 (train.py)" in page


def test_where_no_check_ran_nothing_is_said_to_be_absent():
    unseen = [Abstained(f"finding {kind}", "no shapes") for kind in kinds_of_steps()]
    page = text(gpu(findings=[], abstained=unseen))
    assert f"Nothing was checked: all {len(kinds_of_steps())} checks lacked data." in page
    assert "No known cause" not in page


def test_without_a_step_nothing_is_said_to_be_absent():
    page = text(gpu(findings=[], abstained=[], step=Step(None, None, None, 0, "", "")))
    assert "No known cause" not in page and "none was recorded" in page


def test_a_figure_is_not_cut_off_its_words():
    evidence = [Evidence("words " * 30, 31.8, "ms per step")]
    item = finding("input-too-few-workers", [], evidence=evidence)
    assert ": 31.8 ms per step\n     fathom explain" in text(gpu(findings=[item]), 80)


def finding(kind: str, claims: list[Claim], **more) -> Finding:
    given = {"evidence": [], "gain_ms": 6.0, "low_ms": 5.0, "high_ms": 7.0, "share": 0.1} | more
    words = {"mechanism": "why", "remedy": "mend", "check": ""}
    return Finding(kind, "A title", Where(), claims=claims, confidence=0.8, **words, **given)


def full(**more) -> str:
    item = finding("kernels-unfused-norm", [Claim("compute", "mul", 6.0)], **more)
    out = StringIO()
    print_findings([item, item], console=Console(file=out, width=100, no_color=True))
    return out.getvalue()


def test_a_gain_far_below_what_the_device_no_longer_does_says_where_the_rest_goes():
    assert "waiting, mostly for the host" in full(gain_ms=2.0)
    assert "waiting, mostly for the host" not in full()
    assert "saves     not predicted · confidence 80 %" in full(gain_ms=None)
    assert "less than the sum" in full()


def test_a_gain_that_may_as_well_be_none_or_twice_as_much_is_said_to_be_uncertain():
    assert "saves     perhaps 6.0 ms (0–13), 10 %" in full(low_ms=0.0, high_ms=13.0)
    assert "saves     6.0 ms (3.5–8.5)" in full(low_ms=3.5, high_ms=8.5)


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (0.000171, "MB", ": 171 B"),
        (0.0002, "GB per step", ": 200 kB per step"),
        (0.0484, "ms", ": 48.4 µs"),
        (2500.5, "ms per step", ": 2.50 s per step"),
        (31.8, "ms per step", ": 31.8 ms per step"),
        (0.02, "cores", ": 0.0200 cores"),
        (0, "MB", ": 0 MB"),
    ],
)
def test_evidence_has_a_unit_that_suits_its_size(value, unit, expected):
    assert shown(Evidence("read", value, unit)).removeprefix("read") == expected


@pytest.mark.parametrize(
    ("of", "said"), [("mean step (8.03 ms)", ", in the mean step (8.03 ms)"), ("step", "")]
)
def test_claims_on_the_mean_step_say_so(of, said):
    item = finding("input-collate", [Claim("idle: input", "", 3.13), Claim("idle: gc", "", 1.0)])
    assert claims(item, of) == [f"3.13 ms of idle: input{said}", "1.00 ms of idle: gc"]


def test_slow_steps_say_that_the_unattributed_time_was_recorded_in_them():
    longer = LedgerRow("unattributed", "clean steps took longer", 9.0)
    slow = [SlowStep(0, 70, "cpu", 20.0, [LedgerRow("ops", "aten::mm", 20.0)])]
    for entries, said in (
        ([LedgerRow("ops", "aten::mm", 8.0), longer], True),
        ([longer], True),
        ([work("a", 9, 1)], False),
    ):
        page = text(msgspec.structs.replace(gpu(), devices=[device(entries=entries)], slow=slow))
        assert ("lack 9.00 ms of the clean step" in page) == said and "step 70 on cpu: 20.0 ms" in page
        assert "no record explains it" not in page


def test_a_slow_step_with_long_names_is_wrapped_and_not_cut():
    causes = [LedgerRow(f"idle: cause {letter * 30}", "", 20.0) for letter in "abc"]
    page = text(msgspec.structs.replace(gpu(), slow=[SlowStep(0, 7, "cuda:0", 60.0, causes)]))
    assert all(f"{letter * 30} +20.0 ms" in " ".join(page.split()) for letter in "abc")


def test_slow_rates_are_separate_and_have_a_suitable_unit():
    tanh = work("aten::tanh", 7.3, 4, 8.72e-12, 1.07e-4)
    slow = list(rows(device(entries=[work("aten::mm", 20.0, 80, 0.175, 5.9), tanh]), 100, 12))
    head, mm, tanh = (
        next(line.plain for line in slow if word in line.plain) for word in ("runs", "mm", "tanh")
    )
    assert "GFLOP/s" in head and mm.split()[-3:] == ["80", "175", "5.90"]
    assert tanh.split()[-3:] == ["4", "<0.001", "<0.001"]


def profiled_line(observer_ms, added_ms=None, width=80):
    item = device()
    item.total_ms = sum(entry.ms for entry in item.ledger) - observer_ms
    item.observer_ms, item.added_ms = observer_ms, added_ms
    return next(line for line in rows(item, width, 12) if "profiled step " in line.plain)


def test_much_profiling_overhead_stands_out():
    def style(observer_ms):
        return str(profiled_line(observer_ms).style)

    assert (style(-9.0), style(-1.1)) == ("yellow", "dim")


def test_the_profiled_step_is_the_usual_one_like_the_clean_step_beside_it():
    """Means of 9 ms more are due to rare long steps: the usual profiled step is 0.4 ms longer."""
    line, clean = profiled_line(-9.0, 0.4), sum(entry.ms for entry in device().ledger)
    assert f"{clean + 0.4:.2f}" in line.plain and f"{100 * 0.4 / clean:+.1f}" in line.plain
    assert str(line.style) == "dim" and len(line.plain) <= 80
    assert line.plain.startswith("median profiled step "), "--profiled shows the mean, which is longer"
    assert profiled_line(-9.0, 9.0).plain.startswith("profiled step ")


def test_profiling_takes_nothing_away():
    line = profiled_line(9.0, -8.5).plain
    assert "overhead" not in line and "shorter than clean steps" in line


def test_jitter_of_collectives_has_a_row_each_and_few_without_all():
    rows = [
        Jitter("all_reduce", i, 10, 0.2, 30.0 - i, 31.0, 0.1, 0.5, 0.6, 0.1, 29.5, 30.0) for i in range(9)
    ]
    job = gpu(devices=[device(0), device(1)], jitter=rows)
    short, long = text(job), text(job, top=None)
    assert short.count(" in the step ") == 3 and long.count(" in the step ") == 9
    assert "6 more with --all" in " ".join(short.split()) and "more with --all" not in long
    first = next(line for line in short.splitlines() if "all_reduce, no. 1 in the step" in line)
    assert first.split()[-5:] == ["0.20", "30.00", "31.00", "0.50", "29.50"]


def test_problems_come_before_any_figure():
    page = text(damaged())
    assert page.index("Kernels end before they begin. (rank 1, 3 times)") < page.index("101 ms")
    assert "as profiled, n = 5" in page
    assert "clean step  " not in page and "no clean step was recorded" in page
    assert "--profiled asks" not in page


def test_what_was_not_looked_at_is_named_with_its_reason():
    result = "FLOPs of triton_poi_0, FLOPs of triton_red_1"
    assert f"{result}: no shapes" in text(gpu(), top=None)
    assert f"Not analysed  {result}; --all shows the reasons" in text(gpu())


def test_a_reason_that_changes_a_figure_is_read_without_being_asked_for():
    why = "steps after the profiler had run were 29 % longer"
    said = [
        Abstained("later clean steps", why),
        Abstained("energy", "too short"),
        Abstained("input", "no loader"),
    ]
    page = text(gpu(abstained=said))
    assert f"later clean steps: {why}" in page and "too short" not in page and "no loader" not in page
    assert "Not analysed  energy, input; --all shows the reasons" in page


def test_several_devices_are_compared_and_one_is_detailed():
    other = device(1, [work("only_on_rank_1", 5.0, 1)])
    page = text(gpu(devices=[device(0), other]))
    assert re.search(r"^ +1  cuda:1 NVIDIA H200 +5.000 +5.000 +0.000", page, re.M)
    assert "only_on_rank_1" not in page
    assert "only_on_rank_1" in text(gpu(devices=[device(0), other]), rank=1)


def test_a_rank_that_was_not_recorded_is_refused():
    with pytest.raises(BadInputError, match="Rank 7 has no ledger; use one of: 0"):
        text(gpu(), rank=7)
    with pytest.raises(BadInputError, match="leave --rank out"):
        text(msgspec.structs.replace(gpu(), devices=[]), rank=0)


def test_a_sounding_without_steps_still_has_a_report():
    nothing = gpu(step=Step(None, None, None, 0, ""), devices=[], input=None, memory=None, energy=None)
    nothing.sounding.ended = "no-steps"
    page = text(nothing)
    assert "no step was recorded" in page
    assert "ran to its end without a step" in page


def test_units_follow_the_ending_of_a_key():
    page = text(gpu())
    for part in ("wait 3.03 ms", "peak allocated 7.00 GiB", "24.9 J per step", "mean power 641 W"):
        assert part in page


def test_many_workers_are_cut_short():
    workers = [{"worker": number, "fetch_ms": 1.0} for number in range(16)]
    page = text(gpu(input={"batches": 9, "wait_share": 0.143, "workers": workers}))
    assert "wait share 14.3 %" in page
    assert "worker 3 · fetch 1.00 ms" in page
    assert "worker 4" not in page
    assert "and 12 more workers" in page


def test_brackets_in_names_are_not_markup():
    page = text(gpu(devices=[device(0, [work("kernel[bold]<float>[/]", 3.0, 1)])]))
    assert "kernel[bold]<float>[/]" in page


def test_a_processor_has_ops_for_its_work():
    entries = [
        LedgerRow("ops", "aten::mm", 20.0, count=12, flops_per_s=90e9),
        LedgerRow("idle: input", "", 5.0),
    ]
    page = text(gpu(devices=[device(0, entries)]))
    assert re.search(r"^ ops +20.00 +80.0", page, re.M)
    assert re.search(r"^   aten::mm +20.00 +80.0 .* 12 +90.0", page, re.M)
    assert re.search(r"^ outside ops +5.00 +20.0", page, re.M) and "░ outside ops 20.0 %" in page


def test_a_device_without_work_is_idle():
    page = text(gpu(devices=[device(0, [work("gemm", 3.0, 1), LedgerRow("idle: python", "", 5.0)])]))
    assert "░ idle" in page and "outside ops" not in page


def test_a_terminal_without_unicode_gets_plain_letters():
    raw = BytesIO()
    out = TextIOWrapper(raw, encoding="ascii")
    print_report(gpu(), Console(file=out, width=100))
    out.flush()
    assert b"####" in raw.getvalue()


def test_piped_output_has_no_escape_codes():
    out = StringIO()
    print_report(gpu(), Console(file=out))
    assert "\x1b" not in out.getvalue()
    assert 90 < max(map(len, out.getvalue().splitlines())) <= 100


def test_json_keeps_the_contract_and_does_not_round():
    document = json.loads(msgspec.json.encode(gpu()))
    assert set(document) >= {
        "step",
        "devices",
        "integrity",
        "input",
        "memory",
        "energy",
        "findings",
        "abstained",
    }
    assert set(document["step"]) >= {"clean_ms", "timeline_ms", "ci_ms", "n", "kind"}
    item = document["devices"][0]
    assert set(item) >= {"rank", "device", "windows", "total_ms", "ledger", "observer_ms"}
    assert set(item["ledger"][0]) >= {"entry", "detail", "ms", "at_ceiling_ms"}
    assert set(item["windows"][0]) >= {"start_ns", "end_ns", "kind", "used"}
    assert document["step"]["clean_ms"] == gpu().step.clean_ms


def test_pictures(tmp_path):
    save_picture(gpu(), tmp_path / "r.svg")
    assert (tmp_path / "r.svg").read_text().startswith("<svg")
    save_picture(gpu(), tmp_path / "r.html")
    assert "where" in (tmp_path / "r.html").read_text()
    with pytest.raises(BadInputError, match=r"neither \.svg nor \.html"):
        save_picture(gpu(), tmp_path / "r.png")
    with pytest.raises(BadInputError, match="cannot be written"):
        save_picture(gpu(), tmp_path / "no" / "r.svg")


amounts = st.lists(st.floats(0, 1e6), min_size=1, max_size=4)


@given(amounts, st.integers(20, 118))
def test_cells_fill_the_bar_and_show_whatever_is_there(parts, width):
    result = apportion(parts, width)
    if sum(parts) > 0:
        assert sum(result) == width
        assert all((count > 0) == (part > 0) for part, count in zip(parts, result, strict=True))


@given(st.floats(0, 1), st.integers(1, 40))
def test_a_bar_is_as_wide_as_its_column(share, width):
    assert len(bar(share, width)) == width
    assert (bar(share, width).strip() != "") == (share > 0)


@given(st.lists(st.floats(0.001, 100), min_size=1, max_size=40), st.integers(1, 12))
def test_folding_loses_nothing(times, top):
    group = groups(device(0, [LedgerRow("compute", str(i), ms) for i, ms in enumerate(times)]))[0]
    shown, rest = fold(group, sum(times), top)
    assert sorted(e.ms for e in shown + rest) == sorted(times)
    assert len(rest) != 1


def test_a_gpu_of_amd_is_not_called_cuda():
    named = msgspec.structs.replace(device(), name="AMD Instinct MI300X")
    assert (named.label, device().label) == ("GPU 0", "cuda:0")
    assert (label_of([named], 0), label_of([named], 1)) == ("GPU 0", "cuda:1")


@on_trace("mi300-resnet")
@pytest.mark.skipif(not TRACES.exists(), reason="the shared traces are not here")
def test_no_screen_calls_a_gpu_of_amd_cuda():
    sounding, console = Sounding(imported("mi300-resnet")), Console(file=StringIO(), width=100)
    print_kernels(sounding.kernel("batch_norm_backward"), None, console)
    print_prediction(sounding.what_if("all-kernels=0.5"), console)
    text = console.file.getvalue()
    assert "GPU 2" in text and "cuda" not in text


def test_long_steps_of_the_only_kind_are_named_once():
    rare = LongSteps(0, "step", 4, 40, 10, 5.0, 50.0, 0.5, [])
    assert "one step in 10 takes" in text(msgspec.structs.replace(gpu(), long_steps=[rare]))


def test_long_steps_with_much_of_the_time_suggest_a_larger_unit():
    few, many = (LongSteps(0, "train", 4, 64, 16, 5.0, 50.0, share, []) for share in (0.2, 0.6))
    assert "larger unit" not in text(msgspec.structs.replace(gpu(), long_steps=[few]))
    assert "call fathom.step() once per larger unit" in text(
        msgspec.structs.replace(gpu(), long_steps=[many])
    )
