"""The page: valid references, escaped names, the report's figures, and nothing that loads."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import polars as pl
import pytest

import fathom
from fathom.analysis.communication import Jitter, LateRank
from fathom.analysis.results import (
    Claim,
    CodeTime,
    Evidence,
    Finding,
    FunctionTime,
    LedgerRow,
    LongSteps,
    Part,
    Place,
    RecordingSummary,
    Region,
    SlowStep,
    StepKind,
    Trial,
    Verdict,
    Where,
)
from fathom.errors import BadInputError
from fathom.report import Recording, save_figures, save_page
from fathom.report.communication import straggler
from fathom.report.ledger import groups
from fathom.report.page import figure, stacks
from fathom.report.page.page import page, sections
from fathom.report.page.timeline import Event, _placed
from tests.support.report_samples import damaged, device, gpu

HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}{% raw %}",
    "<!--<script>",
    "javascript:alert(1)",
    "datum.x' + alert(1) + '",
)
VOID = {"meta", "link", "img", "br", "hr", "input", "i/"}
SOUNDING = Path(__file__).parents[3] / "examples/soundings/train_gpt-counters-h200.fathom.zip"
needs_figures = pytest.mark.skipif(not figure.available(), reason="altair and vl-convert are not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page(HTMLParser):
    """A parsed page: its elements with attributes, its visible text, and its scripts by id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self.words: list[str] = []
        self._open: list[str] = []
        self._id = ""
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "script":
            self._id = dict(attrs).get("id") or f"script {len(self.scripts)}"
            self.scripts[self._id] = ""

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] == "script":
            self.scripts[self._id] += data
        elif not self._open or self._open[-1] != "style":
            self.words.append(data)

    def values(self, name: str) -> list[str]:
        return [value for _, attrs in self.elements if (value := attrs.get(name)) is not None]

    def specs(self) -> dict[str, dict]:
        return {key: json.loads(text) for key, text in self.scripts.items() if key.startswith("spec-")}


def account() -> list[Part]:
    parts = [Part("matrix work at its measured ceiling", 9.0, "peak"), Part("memory traffic", 4.5, "ceiling")]
    parts += [Part(f"cause {i}", 2.0 + i / 7, f"finding id-{i}") for i in range(6)]
    return [
        *parts,
        Part("idle: between kernels", 1.25, "cause device gap"),
        Part("other", -0.3, "unexplained"),
    ]


def finding(text: str) -> Finding:
    claims = [Claim("compute", text, 3.0)]
    evidence = [Evidence(text, 3.0, text)]
    return Finding(
        "some-id", text, Where(family=text, source=text), evidence, claims, 3.0, 2.0, 4.0, 0.1, 0.9,
        text, text, text, references=[text, "https://example.org/" + text],
    )  # fmt: skip


@pytest.fixture(scope="module")
def recorded() -> Recording:
    opened = fathom.open(SOUNDING)
    return opened.recording(opened.examine(price="3.50/h"))


@pytest.fixture(scope="module")
def parsed_page(recorded) -> Page:
    return Page(page(recorded))


@pytest.mark.parametrize(
    "examination", [gpu(account=account()), damaged(), gpu(devices=[device(0), device(1)])]
)
def test_every_reference_has_its_target(examination):
    check(Page(page(Recording(examination))))


def test_a_recordings_page_is_valid_small_and_loads_nothing(recorded, parsed_page):
    check(parsed_page)
    assert len(page(recorded)) <= 3_000_000
    titles = " ".join(parsed_page.words)
    for title in ("Account", "Findings", "Roofline", "Timeline of one step", "Kernels", "Input pipeline",
                  "Memory", "Power, clocks, temperature", "Machine", "Integrity"):  # fmt: skip
        assert title in titles
    assert recorded.examination.verdict.headline in titles


def check(parsed: Page) -> None:
    ids = parsed.values("id")
    assert len(ids) == len(set(ids))
    for name in ("aria-labelledby", "data-spec"):
        assert set(parsed.values(name)) <= set(ids)
    assert {f"chart-{target}" for target in parsed.values("data-for")} <= set(ids)
    links = parsed.values("href")
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    assert all(link.startswith(("#", "https://", "http://", "data:")) for link in links)
    assert parsed.values("src") == []
    assert [tag for tag, _ in parsed.elements if tag in ("img", "iframe", "object", "embed", "base")] == []
    assert [attrs["href"] for tag, attrs in parsed.elements if tag == "link"] == ["data:,"]
    policy = next(
        a["content"] for t, a in parsed.elements if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy and "connect" not in policy
    levels = [int(tag[1]) for tag, _ in parsed.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1 and all(after - before <= 1 for before, after in itertools.pairwise(levels))


@pytest.mark.parametrize("text", HOSTILE)
def test_names_from_recordings_stay_text(text):
    examination = gpu(account=[*account(), Part(text, 5.0, f"lead {text}")], findings=[finding(text)])
    examination.devices[0].ledger.append(
        LedgerRow("compute", text, 9.0, flops=1e9, bytes=1e9, flops_per_s=1e12)
    )
    examination.sounding = RecordingSummary(name=text, command=[text], versions={text: text})
    plain = Page(page(Recording(gpu(account=account(), findings=[finding("name")]))))
    parsed = Page(page(Recording(examination, machine={"host": {"os": text}})))
    assert [tag for tag, _ in parsed.elements].count("script") == [tag for tag, _ in plain.elements].count(
        "script"
    )
    assert [tag for tag, _ in parsed.elements].count("img") == 0
    assert not [name for _, attrs in parsed.elements for name in attrs if name.startswith("on")]
    assert all(link.startswith(("#", "http", "data:,")) for link in parsed.values("href"))
    assert text in " ".join(parsed.words)
    if figure.available():
        names = {row.get("kernel") for row in _rows(parsed.specs()["spec-roofline"])}
        assert text in names


def _rows(spec) -> list[dict]:
    """Return all inline data of a specification."""
    if isinstance(spec, dict):
        own = spec.get("data", {}).get("values", []) if isinstance(spec.get("data"), dict) else []
        return [*own, *(row for value in spec.values() for row in _rows(value))]
    return [row for part in spec for row in _rows(part)] if isinstance(spec, list) else []


def test_the_late_rank_of_the_terminals_opening_is_on_the_page():
    examination = gpu(devices=[device(0), device(1)])
    examination.step.timeline_ms = 10.0
    examination.late = [LateRank(1, 5, 8, {"all_reduce": 5}, 0.2, 1.5, 1.0, 4, 4)]
    examination.verdict = Verdict("communication", "Communication-bound.", "", None, None)
    sentence = straggler(examination)
    words = " ".join(Page(page(Recording(examination))).words)
    assert "Rank 1 is late" in sentence and sentence in words


def test_shares_of_late_ranks_are_those_of_the_times_beside_them():
    """The limit of what a rank can cost leaves nothing of the first one, which was last nearly always."""
    examination = gpu(devices=[device(0), device(1)])
    examination.late = [
        LateRank(0, 38, 400, {"all_reduce": 38}, 0.2, 3.69, 0.22),
        LateRank(1, 362, 400, {"all_reduce": 362}, 0.1, 0.0, 0.78),
    ]
    words = " ".join(Page(page(Recording(examination))).words)
    assert "3.69 ms 100 %" in words and "0 ms 0 %" in words


@needs_figures
def test_figures_are_valid_vega_lite(parsed_page):
    import altair

    assert parsed_page.specs()
    for spec in parsed_page.specs().values():
        altair.TopLevelSpec.from_dict(_shortened(spec), validate=True)


def _shortened(spec):
    """Return a specification with three rows of each table: validation takes seconds for all of them."""
    if isinstance(spec, dict):
        return {k: v[:3] if k == "values" and isinstance(v, list) else _shortened(v) for k, v in spec.items()}
    return [_shortened(part) for part in spec] if isinstance(spec, list) else spec


def drawn(recording: Recording, name: str) -> list[dict]:
    return next(f.rows for section in sections(recording) for f in section.figures if f.id == name)


def test_the_waterfall_ends_at_the_step_of_the_json(recorded):
    document = json.loads(msgspec.json.encode(recorded.examination))
    rows = drawn(recorded, "account")
    total = sum(part["ms"] for part in document["account"])
    assert rows[-1]["start"] == 0 and rows[-1]["end"] == pytest.approx(total)
    assert rows[-2]["end"] == pytest.approx(total)
    assert all(b["start"] == a["end"] for a, b in itertools.pairwise(rows[:-1]))


def test_bars_of_the_ledger_sum_to_the_json_ledger():
    examination = gpu(devices=[device(0), device(1)])
    document = json.loads(msgspec.json.encode(examination))
    rows = drawn(Recording(examination), "ledger")
    for rank, item in enumerate(document["devices"]):
        bars = sum(row["ms"] for row in rows if row["device"] == f"rank {rank} cuda:{rank}")
        assert bars == pytest.approx(sum(row["ms"] for row in item["ledger"]))
    assert {row["entry"] for row in rows} == {group.kind.name for group in groups(device())}


def test_the_roofline_has_the_rates_of_the_json(recorded):
    ledger = json.loads(msgspec.json.encode(recorded.examination))["devices"][0]["ledger"]
    known = {
        (r["flops_per_s"], r["flops"] / r["bytes"], r["ms"]) for r in ledger if r["flops"] and r["bytes"]
    }
    points = [row for row in drawn(recorded, "roofline") if "kernel" in row]
    assert points and {(p["y"], p["x"], p["ms"]) for p in points} <= known
    assert any(row.get("roof", "").startswith("hbm") for row in drawn(recorded, "roofline"))


def test_the_axis_of_the_roofline_leaves_room_for_the_largest_dots():
    rates = {"flops_per_s": 1e9, "bytes_per_s": 1e9, "bytes": 1.0}
    rows = [LedgerRow("ops", f"mm{i}", 9.0, count=1, flops=10.0**i, **rates) for i in range(3)]
    recording = Recording(gpu(devices=[device(0, rows)]))  # without ceilings
    roofline = next(f for section in sections(recording) for f in section.figures if f.id == "roofline")
    low, high = figure.specification(roofline)["encoding"]["x"]["scale"]["domain"]
    assert low < 0.7 and high > 150, "a dot is up to a tenth of a decade wide"


def spread(place, p99):
    return Jitter("all_reduce", place, 10, 0.2, p99, p99 + 1, 0.1, 0.5, 0.6, 0.1, p99 - 0.5, p99)


def test_jitter_of_collectives_is_a_table_on_the_page():
    examination = gpu(devices=[device(0), device(1)], jitter=[spread(29, 16.25), spread(3, 0.21)])
    words = " ".join(Page(page(Recording(examination))).words)
    assert "Jitter of collectives" in words and "all_reduce, no. 30 in the step" in words
    assert "16.2 ms 17.2 ms" in words and "no. 4 in the step" not in words


def test_the_heat_map_compares_each_rank_with_the_median():
    slow = device(2, [*device().ledger, LedgerRow("idle: input", "more", 10.0)])
    rows = drawn(Recording(gpu(devices=[device(0), device(1), slow])), "ranks")
    late = next(row for row in rows if row["rank"].startswith("2") and row["entry"] == "idle: input")
    assert late["ms"] == pytest.approx(13.03) and late["more"] == pytest.approx(10.0)
    assert all(row["more"] == 0 for row in rows if not row["rank"].startswith("2"))


def test_events_of_the_timeline_lie_within_its_step(recorded):
    rows = drawn(recorded, "timeline")
    used = [w for w in recorded.examination.devices[0].windows if w.used]
    longest = max(w.end_ns - w.start_ns for w in used) / 1e6
    assert all(0 <= row["a"] <= row["b"] <= longest for row in rows)
    assert {"compute", "host"} <= {row["entry"] for row in rows}
    tracks = {row["lane"] for row in drawn(recorded, "counters") if "value" in row}
    assert {"SM active", "DRAM reads"} <= tracks


def test_an_event_that_the_step_cuts_shows_the_time_within_it_first():
    event = Event("host", "aten::item", "host", 0, 9_000_000)
    cut = _placed(event, 2_000_000, 5_000_000)
    assert (cut["a"], cut["b"], cut["time"]) == (0.0, 3.0, "3.00 ms of 9.00 ms")
    assert _placed(event, 0, 9_000_000)["time"] == "9.00 ms"


def test_memory_over_the_step_stays_below_its_peak(recorded):
    rows = drawn(recorded, "memory")
    lasting, parts = (
        [row["gib"] for row in rows if row["kind"] == kind]
        for kind in ("held throughout", "allocated for a part")
    )
    assert len(set(lasting)) == 1 and min(parts) >= 0
    used = [lasting[0] + part for part in parts]
    peak = recorded.examination.memory.peak_allocated_bytes / 2**30
    assert 0.8 * peak < max(used) <= 1.001 * peak and min(used) < max(used)


def test_each_figure_can_be_saved_as_svg_and_png(parsed_page):
    saves = [a for tag, a in parsed_page.elements if tag == "button" and a.get("class") == "save"]
    charts = [a["id"] for tag, a in parsed_page.elements if tag == "div" and a.get("class") == "chart"]
    assert [f"chart-{a['data-for']}" for a in saves if a["data-type"] == "svg"] == charts
    assert len(saves) == 2 * len(charts) and all(a["aria-label"].startswith("Save ") for a in saves)


def test_clean_and_profiled_ledgers_can_be_switched(parsed_page):
    switches = [a for tag, a in parsed_page.elements if tag == "input" and a.get("type") == "radio"]
    assert [a["value"] for a in switches] == ["1", "2"] and "checked" in switches[0]
    assert "profiled step" in " ".join(parsed_page.words)


def test_kinds_trials_regions_and_long_steps_have_rows():
    examination = gpu(
        kinds=[StepKind("prefill", 9, 3.0, 3.5, 0.7, True), StepKind("decode<b>", 90, 1.25, 1.5, 0.3, False)],
        what_if=[Trial("gc", 40, 5, 24.0, 20.0, 25.0, 20.0, 5.0, 4.0, 6.0, 0.2)],
        long_steps=[LongSteps(0, "train", 4, 40, 10, 5.0, 50.0, 0.5, [])],
        slow=[SlowStep(0, 17, "cuda:0", 99.0, [LedgerRow("idle: gc", "", 60.0)])],
    )
    examination.devices[0].regions = [Region("forward<i>", 4.0, 3.0, 2.0, 1.5)]
    lines = [Place("sums<k>", "/a/train.py:9", 0.25)]
    examination.code = CodeTime(
        0, "train", 400, 8.0, [FunctionTime("sums<k>", "/a/train.py", 0.5, 0.02, 4.0, lines)]
    )
    words = " ".join(Page(page(Recording(examination))).words)
    for text in ("sums<k> (train.py)", "50.0 ± 2.0 %", "9 25 %", "400 samples"):
        assert text in words
    for text in ("decode<b>", "1.25 ms", "no garbage is collected", "25.0 ms → 20.0 ms", "forward<i>",
                 "1.50 ms", "one train step in 10", "step 17 on cuda:0: 99.0 ms"):  # fmt: skip
        assert text in words


def test_stacks_leave_out_fathoms_frames_and_order_callees_by_share():
    rows = stack_rows({"main (/a/t.py:1);wrap (/x/fathom/probe/hooks.py:3);load (/a/t.py:9)": 3,
                       "main (/a/t.py:1);train (/a/t.py:7)": 7})  # fmt: skip
    assert [(row["short"], row["a"], row["b"]) for row in rows] == [
        ("train (t.py:7)", 0.0, 0.7),
        ("load (t.py:9)", 0.7, 1.0),
    ]


def stack_rows(samples: dict[str, int]) -> list[dict]:
    counts = pl.DataFrame({"stack": list(samples), "len": list(samples.values())})
    return stacks.rows_of(counts)


def test_without_altair_the_page_has_tables_and_a_sentence(recorded, monkeypatch, tmp_path):
    monkeypatch.setattr(figure, "available", lambda: False)
    parsed = Page(page(recorded))
    assert figure.EXTRA in " ".join(parsed.words)
    assert parsed.specs() == {} and parsed.values("data-spec") == []
    assert "matrix work at its measured ceiling" in " ".join(parsed.words)
    with pytest.raises(BadInputError, match=r"fathom-perf\[report\]"):
        save_figures(recorded, tmp_path)


def test_a_page_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(BadInputError, match="cannot be written"):
        save_page(Recording(gpu()), tmp_path / "no" / "page.html")


@needs_figures
def test_figures_are_saved_as_svg_and_png(tmp_path):
    saved = save_figures(Recording(gpu(account=account())), tmp_path / "figures")
    assert {path.name for path in saved} >= {"account.svg", "account.png", "ledger.svg", "ledger.png"}
    assert (tmp_path / "figures/account.svg").read_text().startswith("<svg")
    assert (tmp_path / "figures/account.png").read_bytes().startswith(b"\x89PNG")


def drawn_page(path):
    """Open the page in Chromium until it says that all its figures are drawn; a busy machine needs longer."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    for seconds in (20, 60, 180):
        command = [
            CHROMIUM,
            *flags,
            f"--virtual-time-budget={seconds}000",
            f"--user-data-dir={path.parent}/profile",
            str(path),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        if re.search(r"<html[^>]* data-drawn", done.stdout):
            return done
    pytest.fail(f"The page's figures were not drawn. {done.stderr}")


@needs_figures
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_a_browser_draws_every_figure_without_an_error(recorded, tmp_path):
    save_page(recorded, tmp_path / "page.html")
    done = drawn_page(tmp_path / "page.html")
    assert done.stdout.count("<svg") == len([f for s in sections(recorded) for f in s.figures])
    assert "CONSOLE" not in done.stderr
