"""Programs whose steps are of several kinds: each is reported, with its own ledger."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

import fathom
from fathom.analysis.results import Examination
from fathom.diagnosis import examine
from fathom.errors import BadInputError
from fathom.report import print_report
from fathom.report.terminal import page
from fathom.sounding.raw.importer import import_raw
from tests.support.paths import EXAMPLES, REPORTS
from tests.support.probe_programs import launch
from tests.support.running import run_fathom
from tests.support.timelines import Timeline, examination_of, store_of

NEW, PROMPTS, BATCH, LENGTH = 20, 14, 2, 64


def recorded(folder: Path, program: str, *arguments: object, steps: int = 20) -> fathom.Sounding:
    """The sounding of a program in `tests/programs`, of as many steps in the timeline."""
    plan = {"steps": steps, "settle": 4, "depth": "timeline"}
    run = launch(folder, program, *map(str, arguments), plan=plan)
    assert run.status == 0, run.err
    import_raw(folder, folder / "out.fathom")
    return fathom.open(folder / "out.fathom")


def printed(examination: Examination, width: int = 100) -> str:
    return "\n".join(line.plain for line in page(examination, width, top=12, rank=None))


@pytest.fixture(scope="module")
def decoding(tmp_path_factory: pytest.TempPathFactory) -> fathom.Sounding:
    pytest.importorskip("torch")
    return recorded(tmp_path_factory.mktemp("decoding"), "decode.py", PROMPTS, NEW, LENGTH, steps=30)


@pytest.mark.programs
def test_prefill_and_decode_of_a_loop_by_hand_are_told_and_counted(decoding: fathom.Sounding) -> None:
    by_name = {kind.name: kind for kind in decoding.examine().kinds}
    assert set(by_name) == {"prefill", "decode"}
    counts = {name: item.n + item.windows for name, item in by_name.items()}
    # one of NEW calls reads a prompt; settling and the steps around bursts are not counted
    assert counts["decode"] / counts["prefill"] == pytest.approx(NEW - 1, rel=0.35)
    assert sum(item.share_of_time for item in by_name.values()) == pytest.approx(1.0)
    assert [kind.used for kind in decoding.examine().kinds] == [True, False]


@pytest.mark.programs
def test_a_mean_is_of_the_same_steps_as_its_median_wherever_it_is_told(decoding: fathom.Sounding) -> None:
    examination = decoding.examine()
    used = next(kind for kind in examination.kinds if kind.used)
    assert (used.clean_ms, used.clean_mean_ms) == (examination.step.clean_ms, examination.step.clean_mean_ms)
    parts = [kind.n * (kind.all_mean_ms or 0) for kind in examination.kinds]
    assert [kind.share_of_time for kind in examination.kinds] == pytest.approx(
        [part / sum(parts) for part in parts]
    )


def test_tokens_are_counted_where_the_ids_are_known_to_be_such(decoding: fathom.Sounding) -> None:
    rows = decoding.sql("SELECT DISTINCT kind, samples, tokens FROM steps WHERE parent IS NULL").rows()
    assert set(rows) == {("decode", BATCH, BATCH), ("prefill", BATCH, BATCH * LENGTH)}
    for kind in decoding.examine().kinds:
        a_step = BATCH * LENGTH if kind.name == "prefill" else BATCH
        assert kind.tokens_per_s is not None and kind.clean_ms is not None
        assert kind.samples_per_s == pytest.approx(kind.tokens_per_s / a_step * BATCH)


@pytest.mark.programs
@pytest.mark.parametrize("kind", ["prefill", "decode", "1", "2"])
def test_each_kind_has_a_ledger_that_sums_to_its_windows(decoding: fathom.Sounding, kind: str) -> None:
    examination = decoding.examine(kind)
    used = [item.name for item in examination.kinds if item.used]
    assert used == [examination.step.kind] and (kind.isdecimal() or used == [kind])
    for device in examination.devices:
        windows = [window for window in device.windows if window.used]
        assert windows and {window.kind for window in windows} == set(used)
        total = sum(entry.ns for entry in device.profiled_ledger)
        assert total == sum(w.end_ns - w.start_ns for w in windows)


@pytest.mark.programs
def test_the_shapes_of_one_kind_say_nothing_of_another(decoding: fathom.Sounding) -> None:
    store = decoding.store
    shaped = set(store.table("steps").filter(phase="attribution").collect()["kind"])
    for kind in ("prefill", "decode"):
        examination = decoding.examine(kind)
        known = [entry for entry in examination.devices[0].ledger if entry.flops]
        assert bool(known) == (kind in shaped)
        assert any(absence.what == f"work of {kind} steps" for absence in examination.abstained) == (
            kind not in shaped
        )


@pytest.mark.programs
def test_the_report_tells_the_kinds_and_each_is_diagnosed(decoding: fathom.Sounding) -> None:
    usual, other = (printed(decoding.examine(kind)) for kind in (None, "prefill"))
    assert all(words in usual for words in ("kinds of steps", "1 decode", "2 prefill", "\n findings"))
    assert "\n prefill step" in other and "\n findings" in other
    first, second = decoding.examine().kinds
    assert (first.name, first.verdict, first.findings) == ("decode", None, [])  # it is that of the report
    asked = decoding.examine("prefill")
    if (second.share_of_time or 0.0) > 0.05 and second.windows:
        assert second.verdict is not None and f"prefill: {second.verdict.headline}"[:40] in usual
        assert second.account == asked.account and sum(p.ms for p in second.account) == pytest.approx(
            sum(row.ms for row in second.ledger)
        )
        ids = [finding.id for finding in asked.findings if finding.gain_ms is not None]
        assert [finding.id for finding in second.findings] == ids


@pytest.mark.programs
def test_the_command_takes_a_kind_and_says_which_there_are(decoding: fathom.Sounding, tmp_path: Path) -> None:
    done = run_fathom("report", decoding.path, "--kind", "prefill", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["step"]["kind"] == "prefill"
    listed = run_fathom("findings", decoding.path, "--kind", "prefill", "--json", cwd=tmp_path)
    assert json.loads(listed.stdout) == json.loads(done.stdout)["findings"]
    wrong = run_fathom("report", decoding.path, "--kind", "train", cwd=tmp_path)
    assert (
        wrong.returncode == 2
        and "decode (1), prefill (2)" in wrong.stderr
        and len(wrong.stderr.split("\n")) == 2
    )
    for kind in ("0", "3", "-1", "", "²"):
        with pytest.raises(BadInputError):
            decoding.examine(kind)


@pytest.mark.programs
def test_validation_without_a_loader_is_a_kind_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    sounding = recorded(tmp_path, "validate.py", 120)
    steps = sounding.store.table("steps", 0).filter(phase="timeline").collect()
    ops = sounding.store.table("ops", 0).filter(phase="timeline", kind="op", name="aten::argmax").collect()
    validated = [
        ops["start_ns"].is_between(row["mark_ns"], row["end_ns"]).any() for row in steps.iter_rows(named=True)
    ]
    assert 1 <= sum(validated) <= 3
    examination = sounding.examine()
    if len(examination.kinds) == 1:
        pytest.skip("other programs kept this machine so busy that the times tell nothing")
    used, other = examination.kinds
    assert (used.used, other.used) == (True, False) and {used.name, other.name} == {"train", "train+kind 2"}
    named = {window.step: window.kind for window in examination.devices[0].windows}
    assert [named[step] for step in steps["step"]] == [
        "train+kind 2" if item else "train" for item in validated
    ] or sum(validated) > 1  # the usual kind takes most time, unless it is a single step
    assert sum(item.windows for item in examination.kinds) == steps.height
    for kind in ("1", "2"):
        device = sounding.examine(kind).devices[0]
        windows = [window for window in device.windows if window.used]
        assert len({validated[steps["step"].to_list().index(w.step)] for w in windows}) == 1
        total = sum(entry.ns for entry in device.profiled_ledger)
        assert total == sum(w.end_ns - w.start_ns for w in windows)


def test_nothing_is_printed_of_kinds_where_there_is_one() -> None:
    path = EXAMPLES / "train_gpt-h200.fathom.zip"
    if not path.exists():
        pytest.skip("the example is not here")
    examination = fathom.open(path).examine()
    assert [kind.name for kind in examination.kinds] == ["train"]
    assert (
        examination.kinds[0].clean_ms == examination.step.clean_ms
        and examination.kinds[0].share_of_time == 1.0
    )
    assert "kinds of steps" not in printed(examination)


def test_reports_of_before_are_read_as_having_no_kinds() -> None:
    path = REPORTS / "generate.json"
    if not path.exists():
        pytest.skip("the report is not here")
    decoded = msgspec.json.decode(path.read_bytes(), type=Examination)
    assert decoded.step.kind == "decode" and "kinds of steps" not in printed(decoded)
    print_report(decoded)


MS = 1_000_000


def on_a_device(lengths: list[int], clean: list[tuple[int, str, bool]] = ()) -> Timeline:
    """A timeline of steps as long as what a device works in each; those of 30 ms run other kernels.

    Before it clean steps: length in ms, kind, and whether device events surround it.
    """
    made, now = Timeline(phase="clean"), 0
    for length, kind, measured in clean:
        end = now + length * MS
        events = {"device_ns": now, "device_end_ns": end} if measured else {}
        made.step(now, end, kind=kind, **events)
        now = end
    made.phase, made.burst = "timeline", 1
    for length in lengths:
        made.step(now, now + length * MS)
        name = "reading" if length == 30 else "writing"
        for piece in range(length):
            at = now + piece * MS
            made.kernel(at + MS // 10, at + MS, at, name=name)
        now += length * MS
    return made


def test_other_kernels_that_take_longer_are_a_kind_of_their_own(tmp_path: Path) -> None:
    examination = examination_of(tmp_path / "a.fathom", on_a_device([10] * 5 + [30, 10, 10, 30, 10]))
    assert [(kind.name, kind.windows, kind.used) for kind in examination.kinds] == [
        ("train", 8, True),
        ("train+kind 2", 2, False),
    ]
    assert [round(kind.timeline_ms or 0) for kind in examination.kinds] == [10, 30]
    assert sum(kind.share_of_time or 0 for kind in examination.kinds) == pytest.approx(1)
    assert {entry.detail for entry in examination.devices[0].ledger if entry.entry == "compute"} == {
        "writing"
    }


def test_one_step_alone_is_split_off_only_where_clean_steps_show_it_too(tmp_path: Path) -> None:
    examination = examination_of(tmp_path / "a.fathom", on_a_device([10] * 9 + [30]))
    assert [kind.name for kind in examination.kinds] == ["train"]


def test_which_clean_steps_of_a_device_are_of_a_kind_is_not_guessed(tmp_path: Path) -> None:
    clean = [(10, "train", True), (10, "train", True), (30, "train", True)] * 4
    examination = examination_of(tmp_path / "a.fathom", on_a_device([10] * 8 + [30] * 2, clean))
    usual, other = examination.kinds
    assert usual.clean_ms == examination.step.clean_ms and other.clean_ms is None
    assert "fathom.step(kind=...)" in other.why
    assert any(
        absence.what == "clean train+kind 2 step" and absence.why == other.why
        for absence in examination.abstained
    )


def test_marks_of_a_host_are_no_lengths_of_a_kind_on_a_device(tmp_path: Path) -> None:
    clean = [
        *[(10, "train", True)] * 4,
        (1, "prefill", False),
        *[(10, "train", True)] * 4,
        (2, "prefill", False),
    ]
    examination = examination_of(tmp_path / "a.fathom", on_a_device([10] * 6, clean))
    usual, other = examination.kinds
    assert (other.name, other.n, other.clean_ms, other.share_of_time) == ("prefill", 2, None, None)
    assert usual.share_of_time is None and "not step times" in other.why
    assert "\N{EN DASH}" in next(line for line in printed(examination).split("\n") if "2 prefill" in line)
    absent = examine(store_of(tmp_path / "b.fathom", on_a_device([10] * 6, clean)), kind="prefill")
    assert absent.step.clean_ms is None and not absent.devices[0].ledger
    assert any(absence.what == "ledger of prefill steps" for absence in absent.abstained)
