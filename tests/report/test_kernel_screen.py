"""`fathom kernel`: what a person sees of kernel families."""

from __future__ import annotations

import json
from io import StringIO
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from typer.testing import CliRunner

import fathom
from fathom.analysis.folding import Excerpt
from fathom.cli.main import app
from fathom.errors import BadInputError
from fathom.report.kernel import matching, page
from fathom.report.kernel.picture import picture
from tests.support import kernel_soundings as hand_made
from tests.support.paths import EXAMPLES
from tests.support.running import run_fathom
from tests.support.timelines import Timeline, examination_of

EXAMPLE = EXAMPLES / "train_gpt-h200.fathom.zip"


@pytest.fixture(scope="module")
def sounding(tmp_path_factory):
    return hand_made.make(tmp_path_factory.mktemp("screen") / "k.fathom").path


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    return hand_made.make(tmp_path_factory.mktemp("screen") / "k.fathom", counters=False).path


def run(*words):
    done = CliRunner().invoke(app, ["kernel", *map(str, words)])
    return done.exit_code, done.output


def test_the_list_names_what_limits_each(sounding):
    status, text = run(sounding)
    assert status == 0
    rows = {line.split()[0]: line for line in text.splitlines() if "_kernel" in line}
    assert "tensor cores" in rows["gemm_kernel"] and rows["gemm_kernel"].rstrip().endswith("86")
    assert "special functions" in rows["exp_kernel"]
    assert "short launches" in rows["tiny_kernel"]


def test_one_family_in_depth(sounding):
    status, text = run(sounding, "EXP")
    assert status == 0
    words = " ".join(text.split())
    assert "limited by special functions, 92 %" in words
    assert "fewer exponentials" in words
    for part in ("roofline", "DRAM", "L2", "L1 and shared", "counters", "±", "samples", "occupancy"):
        assert part in text
    assert "gemm" not in text


def test_every_counter_on_demand(sounding):
    _, short = run(sounding, "gemm")
    _, long = run(sounding, "gemm", "--all", "--counters")
    assert "sm__cycles_active.avg" not in short
    assert "sm__cycles_active.avg" in long and "launch__registers_per_thread" in long
    assert "with --all" in short and "with --all" not in long


def test_without_counters_it_says_what_is_known_and_how_to_get_them(bare):
    status, text = run(bare, "tiny")
    assert status == 0
    words = " ".join(text.split())
    assert "small grid" in words or "short launches" in words
    assert "fathom run --depth counters" in words
    assert "24 registers per thread" in words


def test_json_has_everything(sounding):
    status, text = run(sounding, "--json")
    document = json.loads(text)
    assert status == 0 and len(document) == 3
    assert {"family", "bound", "roofline", "measures", "counters", "reasons", "occupancy"} <= set(document[0])
    _, item = run(sounding, "exp", "--json")
    assert [p["family"].split("_")[0] for p in json.loads(item)] == ["exp"]


@pytest.mark.parametrize("pattern", ["nothing like this", "[", "*nope*", "\x1b[31m", ""])
def test_patterns_that_name_nothing_or_everything(sounding, pattern):
    status, text = run(sounding, pattern)
    assert status == (0 if pattern == "" else 2)
    assert "Traceback" not in text


def test_shell_patterns_and_parts_of_names(sounding):
    for pattern in ("tiny_kernel*64x1x1", "Tiny", "t?ny_kernel*"):
        assert "tiny_kernel 4x1x1" in run(sounding, pattern)[1]


def test_a_rank_without_a_timeline_is_an_error_for_people(sounding):
    status, text = run(sounding, "--rank", 7)
    assert status == 2 and "Traceback" not in text


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_lines_fit_and_are_plain_where_the_terminal_is(sounding, width):
    from fathom.analysis.folding import counters_of
    from fathom.analysis.measures import device_portraits
    from fathom.api import open

    opened = open(sounding)
    device = opened.examine().devices[0]
    result = device_portraits(opened.store, device, opened.store.machine, counters_of(opened.store, 0))
    for pattern in (None, "kernel"):
        for line in page(result, pattern, width, every=True, counters=True):
            assert line.cell_len <= width
    with pytest.raises(BadInputError):
        matching([], "a")
    console = Console(file=StringIO(), width=width)
    console.print(*page([], None, width))
    assert "No kernel was recorded" in console.file.getvalue()


def test_the_recorded_layer_norm_has_l2_traffic_and_no_flops_of_tensor_cores():
    counted = EXAMPLE.with_name("train_gpt-counters-h200.fathom.zip")
    status, text = run(counted, "vectorized_layer_norm", "--json")
    assert status == 0
    levels = {level["name"]: level for level in json.loads(text)[0]["roofline"]}
    l2, dram = levels["L2"], levels["DRAM"]
    assert l2["ceiling"] == pytest.approx(9.47e12, rel=0.01)  # l2.read of the recording's machine
    assert l2["rate"] == pytest.approx(dram["rate"], rel=0.15)  # it streams: what DRAM moves passes L2 once
    assert l2["used"] == pytest.approx(l2["rate"] / l2["ceiling"]) and l2["intensity"]
    assert levels["tensor cores"]["rate"] is None
    assert levels["tensor cores"]["used"] == pytest.approx(0.034, abs=0.001)
    assert levels["FP32 pipe"]["rate"] is None and levels["FP32 pipe"]["why"]


def test_the_example_is_told_without_counters():
    status, text = run(EXAMPLE)
    assert status == 0
    first = next(line for line in text.splitlines() if line.startswith(" GammaBeta"))
    assert "small grid" in first
    status, text = run(EXAMPLE, "GammaBeta")
    assert "6.1 %" in text and "matmul" not in text
    assert "must move" in text


def test_samples_around_a_launch_are_drawn(sounding, bare, tmp_path):
    file = tmp_path / "gemm.svg"
    assert run(sounding, "gemm", "--svg", file) == (0, "")
    drawing = ElementTree.parse(file).getroot()
    space = "{http://www.w3.org/2000/svg}"
    lines = drawing.findall(f"{space}polyline")
    assert len(lines) >= 5
    heights = [float(point.split(",")[1]) for point in lines[0].get("points").split()]
    assert max(heights) - min(heights) > 30  # work and idle time are distinguished
    titles = [title.text for title in drawing.iter(f"{space}title")]
    assert "gemm_kernel 2x66x1·384x1x1" in titles
    for words in ((bare, "gemm", "--svg", file), (sounding, "gemm", "--svg", tmp_path / "a.png")):
        assert run(*words)[0] == 2
    assert run(sounding, "gemm", "--svg", tmp_path / "no" / "a.svg")[0] == 2


def test_a_program_on_the_processor_has_no_kernels_and_no_warnings(tmp_path):
    made = Timeline(devices={})
    for at in range(1000, 9000, 1000):
        made.step(at, at + 1000)
        made.op("aten::mm", at + 100, at + 900)
    path = tmp_path / "cpu.fathom"
    assert examination_of(path, made).devices[0].device == "cpu"
    done = run_fathom("kernel", path, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "ran on the processor" in done.stderr


def test_hostile_names_stay_text_in_a_picture():
    name = "<script>alert(1)</script>&\x1b[31m\x00 8x1x1·1x1x1"
    kernels = pl.DataFrame({"label": [name], "stream": [None], "start": [0], "end": [900]})
    edges = np.array([0, 500, 1000])
    values = {"<b>__x": np.array([np.nan, 250.0])}
    drawing = picture(Excerpt(1000, kernels, edges[:-1], edges[1:], values), name, name)
    root = ElementTree.fromstring(drawing)
    assert "<script" not in drawing and "\x1b" not in drawing
    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 1


def test_shares_are_of_the_clean_step_as_in_the_report():
    opened = fathom.open(EXAMPLE)
    clean_ms = opened.examine().step.clean_ms
    assert all(
        portrait.share == pytest.approx(portrait.ms / clean_ms, rel=1e-6) for portrait in opened.kernel()
    )


def test_a_kernel_that_shares_its_ops_bytes_is_not_judged_by_them():
    """Gradients of a layer norm take two kernels, one of which moves three tensors of 33.6 MB."""
    counted = fathom.open(EXAMPLE.with_name("train_gpt-counters-h200.fathom.zip"))
    (norm,) = (p for p in counted.kernel() if p.family.startswith("layer_norm_grad_input"))
    assert norm.work.divided and norm.work.bytes_a_launch < 0.3 * 100.7e6
    assert not [measure for measure in norm.measures if measure.name == "dram_over_compulsory"]
    (read,) = (measure.value for measure in norm.measures if measure.name == "dram_bytes")
    assert read > 100e6
