"""The Python interface: opening a sounding, and recording a stretch of this program."""

from __future__ import annotations

import dataclasses
import html
import inspect
import re
import subprocess
from pathlib import Path

import msgspec
import pytest

import fathom
from fathom.analysis.replay import Prediction
from fathom.analysis.results import Abstained, Evidence
from fathom.errors import BadInputError, FathomError
from fathom.referee import Pair, Settings
from tests.support.paths import EXAMPLES
from tests.support.running import PYTHON, environment, run_fathom
from tests.support.small_sounding import MS, make


@pytest.fixture
def sounding(tmp_path):
    return fathom.open(make(tmp_path / "small.fathom").path)


def test_importing_fathom_is_light():
    code = "import sys, fathom; print(sorted(m for m in sys.modules if m.startswith('fathom') or m in HEAVY))"
    code = code.replace("HEAVY", "('polars', 'numpy', 'typer', 'rich', 'json')")
    done = subprocess.run([PYTHON, "-c", code], env=environment(), capture_output=True, text=True)
    assert done.stdout.strip() == "['fathom', 'fathom.errors', 'fathom.version']"


def test_tables_hold_every_rank(sounding):
    kernels = sounding.table("kernels").collect()
    assert kernels.height == 12 and kernels["rank"].unique().sort().to_list() == [0, 1]
    with pytest.raises(BadInputError, match="no table 'kernel'"):
        sounding.table("kernel")


def test_sql_sees_recorded_and_derived_tables(sounding):
    assert sounding.sql("SELECT sum(end_ns - start_ns) AS ns FROM kernels").item() == 2 * 3 * 5 * MS
    per_rank = "SELECT rank, sum(ms) AS ms FROM ledger GROUP BY rank ORDER BY rank"
    totals = {device.rank: device.total_ms for device in sounding.examine().devices}
    assert dict(sounding.sql(per_rank).rows()) == pytest.approx(totals)
    assert sounding.sql("SELECT count(*) AS n FROM windows").item() == sounding.windows.height > 0


def test_the_ledger_is_a_table_of_the_examination(sounding):
    first = sounding.examine().devices[0]
    mine = sounding.ledger.filter(rank=first.rank, device=first.device)
    assert mine["entry"].to_list() == [entry.entry for entry in first.ledger]
    assert mine["ns"].sum() == sum(w.end_ns - w.start_ns for w in first.windows if w.used)


def test_it_is_examined_once(sounding):
    assert sounding.examine() is sounding.examine()
    assert sounding.step is sounding.examine().step and sounding.findings == sounding.examine().findings


def test_a_packed_file_opens_as_the_folder_does(tmp_path, sounding):
    run_fathom("pack", "small.fathom", cwd=tmp_path)
    packed = fathom.open(tmp_path / "small.fathom.zip")
    assert packed.manifest == sounding.manifest
    assert packed.ledger.equals(sounding.ledger)
    assert repr(packed) == repr(sounding).replace("small.fathom:", "small.fathom.zip:")


def test_dir_lists_the_public_names():
    names = dir(fathom)
    assert set(fathom.__all__) == set(names)
    assert all(getattr(fathom, name) is not None for name in names)


def test_a_notebook_shows_verdict_and_ledger(sounding):
    shown = sounding._repr_html_()
    verdict = sounding.examine().verdict
    assert verdict is not None and html.escape(verdict.headline) in shown
    assert "clean step" in shown or "step, as profiled" in shown
    assert shown.count("<table>") == shown.count("</table>") == 1


def test_options_of_prove_are_named_and_typed():
    options = inspect.signature(fathom.prove).parameters.values()
    assert all(
        option.kind is not inspect.Parameter.VAR_KEYWORD and option.annotation != "Any" for option in options
    )
    defaults = {option.name: option.default for option in options}
    for field in (*dataclasses.fields(Pair), *dataclasses.fields(Settings)):
        if field.name in defaults and field.default is not dataclasses.MISSING:
            assert defaults[field.name] == field.default, field.name


def test_a_notebook_escapes_names(tmp_path):
    store = make(tmp_path / "small.fathom")
    store.manifest.name = "<script>alert(1)</script>"
    shown = fathom.Sounding(store)._repr_html_()
    assert "<script" not in shown and "compute" in shown


def test_a_finding_and_a_prediction_read_as_a_sentence():
    sounding = fathom.open(EXAMPLES / "train_gpt-h200.fathom.zip")
    finding = max(sounding.findings, key=lambda finding: finding.gain_ms or 0.0)
    assert repr(finding).startswith(f"<Finding {finding.id}: {finding.title}; saves ")
    assert f"{100 * finding.share:.0f} % of the step>" in repr(finding) and "\n" not in repr(finding)
    prediction = sounding.what_if("input=0")
    before, after = re.findall(r"([\d.]+) ms", repr(prediction))
    assert float(before) == pytest.approx(prediction.clean_ms, rel=0.01)
    assert float(after) == pytest.approx(prediction.clean_predicted_ms, rel=0.01)
    for result in (finding, prediction):
        assert result._repr_html_().startswith("<p><b>") and len(repr(result)) < 200
    planted = msgspec.structs.replace(finding, evidence=[Evidence("<script>", 1.0, "ms")], gain_ms=None)
    assert "<script>" not in planted._repr_html_() and "&lt;script&gt;: 1 ms" in planted._repr_html_()
    assert repr(planted).endswith("; gain not predicted>")
    nothing = Prediction(["gpu=0"], 0, "cpu", 0, None, None, abstained=[Abstained("replay", "it is a CPU")])
    assert repr(nothing) == "<Prediction gpu=0: no prediction; it is a CPU>"


def test_its_name_and_path(sounding, tmp_path):
    assert sounding.path == tmp_path / "small.fathom" and "2 ranks" in repr(sounding)


@pytest.mark.parametrize("options", [{"depth": "deep"}, {"steps": 0}, {"step_on": "x"}])
def test_record_refuses_what_run_refuses(tmp_path, options):
    with pytest.raises(BadInputError):
        fathom.record(tmp_path / "x.fathom", **options)
    assert list(tmp_path.iterdir()) == []


def test_record_overwrites_nothing(tmp_path):
    (tmp_path / "x.fathom").mkdir()
    with pytest.raises(FathomError, match="already exists"), fathom.record(tmp_path / "x.fathom"):
        pass


SCRIPT = """
import fathom, torch
model = torch.nn.Linear(32, 32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps):
    for i in range(steps):
        model(torch.randn(8, 32)).sum().backward()
        optimizer.step()
train(5)
with fathom.record("a.fathom", settle=3) as recording:
    train(50)
print(recording.path, recording.sounding.step.kind, recording.sounding.step.n)
train(5)
begun = iter(torch.utils.data.DataLoader(torch.randn(800, 32), batch_size=8))
next(begun)
with fathom.record("b.fathom", depth="surface", step_on="mark", settle=3):
    for i in range(30):
        next(begun)
        train(1)
        fathom.step(samples=8)
    for batch in torch.utils.data.DataLoader(torch.randn(16, 32), batch_size=4):  # kept by its iterator alone
        fathom.step(samples=4)
"""


def script(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(text)
    return subprocess.run(
        [PYTHON, "script.py"], cwd=folder, env=environment(), capture_output=True, text=True, timeout=120
    )


def counts(folder: Path, name: str) -> dict[str, int]:
    sql = "SELECT source, count(*) AS n FROM steps WHERE parent IS NULL GROUP BY source"
    return dict(fathom.open(folder / name).sql(sql).rows())


@pytest.mark.programs
def test_a_script_records_stretches_of_itself(tmp_path):
    done = script(tmp_path, SCRIPT)
    assert done.returncode == 0, done.stderr
    path, kind, n = done.stdout.split()
    assert (path, kind) == ("a.fathom", "train") and int(n) > 10
    assert 48 <= counts(tmp_path, "a.fathom")["optimizer"] <= 50
    assert 32 <= counts(tmp_path, "b.fathom")["mark"] <= 34
    loading = fathom.open(tmp_path / "b.fathom")  # by an iterator from before the recording
    assert loading.manifest.problems == [] and loading.examine().input.batches > 10
    assert [loader["batch_size"] for loader in loading.manifest.ranks[0].facts["loaders"]] == [8, 4]
    for name in ("a.fathom", "b.fathom"):
        sounding = fathom.open(tmp_path / name)
        assert sounding.manifest.made_by == "record" and sounding.manifest.ended == "finished"
        assert sounding.sql("SELECT count(*) AS n FROM telemetry").item() > 0
        assert not (tmp_path / name / "raw").exists()


@pytest.mark.programs
def test_what_fails_inside_comes_out_and_leaves_a_sounding(tmp_path):
    text = "import fathom, torch\nwith fathom.record('a.fathom', step_on='mark'):\n"
    text += "    for i in range(9): fathom.step()\n    raise LookupError('mine')\n"
    done = script(tmp_path, text)
    assert done.returncode == 1 and "LookupError: mine" in done.stderr
    assert fathom.open(tmp_path / "a.fathom").manifest.ended == "crashed"


@pytest.mark.programs
def test_under_fathom_run_it_stands_back(tmp_path):
    (tmp_path / "script.py").write_text(
        SCRIPT.replace("print(", "print(recording.sounding) if True else print(")
    )
    done = run_fathom("run", "--quiet", "-o", "out.fathom", "--", "python", "script.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "None\n"), done.stderr
    assert "recorded already" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.fathom", "script.py"]
    assert 32 <= counts(tmp_path, "out.fathom")["mark"] <= 34
