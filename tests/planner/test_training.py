"""Plans of training: against published runs, formulas of papers, brute force, and simulation."""

from __future__ import annotations

import csv
import itertools
import re
import zipfile
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tomllib
from typer.testing import CliRunner

from benchmarks.plan.calibrate import predict_s
from benchmarks.plan.others import CALCULON, MEASURED, predicted
from benchmarks.plan.published import DATA
from benchmarks.plan.unseen import run_of, runs
from fathom.cli.main import app
from fathom.errors import BadInputError
from fathom.planner.hardware import hardware
from fathom.planner.training import (
    Job,
    Layouts,
    Step,
    ask,
    calibration,
    constants,
    derivation,
    launch_files,
    peak_bytes,
    plan_training,
    priors,
    rates_of,
    stack,
)
from fathom.planner.training.cost import expected_maximum, fullest_stage
from fathom.planner.training.layout import DDP, FSDP, FULL, NONE, ZERO1, ZERO2
from fathom.planner.training.search import layouts, rank
from fathom.planner.workload import model
from tests.support.paths import EXAMPLES

H100, LLAMA = hardware("h100"), model("llama3-8b")


def rates(name="megatron", system=H100):
    return rates_of(system, stack(name), constants())


def seconds(shape, job, at, **more):
    return Step(shape, H100, job, at, replace(rates(), **more)).entries()


# Published step times that no constant was fitted to: NVIDIA dgxc-benchmarking v25.04.02, and torchtitan.
PUBLISHED = [
    ("llama3.1-405b", "h100", "megatron-25.04", "bf16", 8192, 256,
     {"tp": 8, "pp": 8, "vpp": 8, "cp": 2}, 512, 19.78),
    ("llama3-70b", "h100", "megatron-25.04", "bf16", 8192, 512,
     {"tp": 4, "pp": 4, "vpp": 5, "cp": 2}, 256, 14.68),
    ("nemotron4-15b", "h100", "megatron-25.04", "bf16", 4096, 256, {"tp": 2, "micro": 2}, 64, 2.67),
    ("nemotron4-340b", "gb200", "megatron-25.05", "bf16", 4096, 512,
     {"tp": 8, "pp": 4, "vpp": 12}, 128, 32.66),
    ("llama3-8b", "h100-96gb", "torchtitan-2024", "fp8", 8192, 256,
     {"micro": 2, "sharding": FSDP, "recompute": 1, "shard": 0}, 128, 1.955),
]  # fmt: skip


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row[0]}-{row[1]}")
def test_published_steps_lie_in_the_interval(row):
    name, system, software, precision, seq, batch, degrees, gpus, truth = row
    degrees = {
        "cp": 1,
        "pp": 1,
        "vpp": 1,
        "tp": 1,
        "micro": 1,
        "sharding": ZERO1,
        "recompute": NONE,
    } | degrees
    question = ask(name, system, gpus=gpus, batch=batch, seq=seq, precision=precision, stack=software)
    plan = plan_training(replace(question, wanted=degrees, memory=1e12))
    assert plan.step.low <= truth <= plan.step.high
    assert abs(plan.step.value / truth - 1) < 0.12


def test_calibration_rows_are_at_most_five_for_each_type():
    rows = calibration().rows
    assert len(rows) == len(set(rows)) <= 5 * 9
    assert set(calibration().values) == set(priors())


def test_vectorised_costs_are_those_of_one_layout_at_a_time():
    job, everything = Job(8192, 64, 16), layouts(LLAMA, Job(8192, 64, 16))
    chosen = everything[np.random.default_rng(1).integers(len(everything), size=40)]
    vectorised = Step(LLAMA, H100, job, chosen, rates()).seconds()
    alone = [float(Step(LLAMA, H100, job, chosen[i], rates()).seconds()[0]) for i in range(40)]
    assert vectorised == pytest.approx(alone)


def test_the_search_finds_what_nested_loops_find():
    job, limit = Job(4096, 32, 8), 60e9
    best = np.inf
    for tp, pp, cp in itertools.product((1, 2, 4, 8), repeat=3):
        if 8 % (tp * pp * cp) or (4096 % (2 * cp) and cp > 1) or 4096 // cp < 1024:
            continue
        dp = 8 // (tp * pp * cp)
        chunks = [v for v in (1, 2, 3, 4, 5, 6, 8, 10, 12) if v == 1 or (pp > 1 and 32 % (pp * v) == 0)]
        micros = [m for m in range(1, 33) if 32 % (dp * m) == 0]
        shardings = (ZERO1, ZERO2, FSDP) if pp == 1 else (ZERO1, FSDP)
        for vpp, micro, sharding, again in itertools.product(chunks, micros, shardings, (0, 1, 2)):
            at = Layouts(dp, tp, pp, vpp, cp, 1, micro, sharding, 0, again, tp > 1)
            if sum(peak_bytes(LLAMA, job, at, rates()).values())[0] <= limit:
                best = min(best, Step(LLAMA, H100, job, at, rates()).seconds()[0])
    at = layouts(LLAMA, job)
    ranked, _ = rank(LLAMA, H100, job, rates(), at, limit)
    assert ranked.min() == pytest.approx(best)


def test_every_layout_that_the_search_tries_is_valid():
    for name, job in (("llama3-70b", Job(8192, 96, 48)), ("deepseek-v3", Job(4096, 256, 64))):
        shape = model(name)
        at = layouts(shape, job)
        assert (at.gpus == job.gpus).all() and (job.batch % (at.dp * at.micro) == 0).all()
        assert all(mixer.heads % tp == 0 for mixer in (b.mixer for b in shape.blocks) for tp in set(at.tp))
        assert ((at.dp * at.cp * at.tp) % at.ep == 0).all() and (at.pp <= shape.layers).all()


@pytest.mark.parametrize(("pp", "vpp"), [(2, 1), (4, 1), (4, 2), (8, 4)])
def test_the_bubble_is_that_of_megatrons_schedules(pp, vpp):
    # arXiv:2104.04473, sections 2.2.1 and 2.2.2: (p − 1) / m of the ideal time, divided by v if interleaved
    shape, micro_batches = replace(LLAMA, vocab=128), 32
    job = Job(2048, micro_batches, pp)
    entries = seconds(shape, job, Layouts(1, 1, pp, vpp, sharding=DDP), bubble=1.0, step_s=0.0)
    once = ("pipeline bubble", "optimizer", "step overhead", "data parallel", "slowest rank")
    ideal = sum(float(value[0]) for name, value in entries.items() if name not in once)
    assert float(entries["pipeline bubble"][0]) / ideal == pytest.approx(
        (pp - 1) / micro_batches / vpp, rel=0.01
    )


def test_states_take_what_the_zero_paper_counts():
    # arXiv:1910.02054, figure 1: 7.5 billion parameters on 64 GPUs, fp16 gradients: 120, 31.4 and 16.6 GB
    shape = replace(model("llama2-7b"), vocab=120_000)
    billions, job = shape.parameters / 1e9, Job(128, 64, 64)
    for sharding, per_parameter in ((DDP, 16), (ZERO1, 4 + 12 / 64), (ZERO2, 2 + 14 / 64)):
        parts = peak_bytes(shape, job, Layouts(64, sharding=sharding), rates())
        states = sum(float(parts[k][0]) for k in ("parameters", "gradients", "optimizer")) / 1e9
        assert states == pytest.approx(billions * per_parameter, rel=0.01)


def test_recomputation_trades_memory_for_time():
    job = Job(8192, 8, 1)
    at = Layouts(np.ones(3, int), recompute=[NONE, 1, FULL])
    kept = peak_bytes(LLAMA, job, at, rates())["activations"]
    taken = Step(LLAMA, H100, job, at, rates()).seconds()
    assert kept[0] > kept[1] > kept[2] and taken[0] < taken[1] < taken[2]
    products = Step(LLAMA, H100, job, at, rates()).entries()["matmuls"]
    layers = 1 - 128256 * 4096 / LLAMA.parameters  # the output matrix is not repeated
    assert products[2] / products[0] == pytest.approx(1 + layers / 3, rel=0.03)


def test_a_ring_takes_as_long_as_its_simulation():
    # Each rank sends one part to its neighbour, n − 1 times; all links work at once.
    step, size = Step(LLAMA, H100, Job(2048, 8, 8), Layouts(8), rates()), 8e9
    link = H100.fabric[0].rate * rates().link
    simulated = sum(max(size / 8 / link for _ in range(8)) for _ in range(7))
    assert float(np.ravel(step.ring(size, 8, 1))[0]) == pytest.approx(simulated, rel=0.01)
    across = float(np.ravel(step.ring(size, 16, 8))[0])  # one rank in each node: its own port
    assert across > 15 / 16 * size / H100.fabric[-1].rate


@pytest.mark.parametrize("ranks", [2, 8, 64, 1024])
def test_the_slowest_of_many_ranks_is_the_largest_of_normal_draws(ranks):
    drawn = np.random.default_rng(3).normal(size=(2000, ranks)).max(1).mean()
    assert expected_maximum(ranks) == pytest.approx(drawn, abs=0.06)


def test_scaling_only_loses_and_marks_what_is_extrapolated():
    plan = plan_training(ask("llama3-8b", "h100", gpus=8, batch=64))
    efficiencies = [row.efficiency for row in plan.scaling]
    assert efficiencies == sorted(efficiencies, reverse=True) and plan.scaling[-1].gpus > 500_000
    assert plan.scaling[-1].extrapolated and not plan.scaling[0].extrapolated


def test_a_plan_adds_up():
    plan = plan_training(ask("llama3-8b", "h100", gpus=8, batch=64, tokens=1e12, price="2.5/h"))
    assert sum(row.ms for row in plan.ledger) == pytest.approx(1000 * plan.step.value)
    assert sum(plan.memory_parts.values()) == pytest.approx(plan.memory.value)
    assert plan.dollars == pytest.approx(plan.hours * 8 * 2.5)
    assert plan.hours == pytest.approx(1e12 / plan.tokens_per_s / 3600)
    assert all(row.low <= row.value <= row.high and row.source for row in plan.assumptions)
    for option, other in itertools.permutations(plan.front, 2):
        assert option.step_s > other.step_s or option.gpu_hours > other.gpu_hours


def test_rates_and_costs_have_the_interval_of_the_step():
    plan = plan_training(ask("llama3-8b", "h100", gpus=8, batch=64, tokens=1e12, price="2.5/h"))
    for key, value in {"hours": plan.hours, "dollars": plan.dollars}.items():
        of = plan.figures[key]
        assert of.value == value and of.low / value == pytest.approx(plan.step.low / plan.step.value)
    rate = plan.figures["tokens_per_s"]
    assert rate.low * plan.step.high == pytest.approx(rate.value * plan.step.value)
    energy, watts = plan.figures["megawatt_hours"], plan.figures["watts_per_gpu"]
    assert watts.provenance == "assumed" and energy.high / energy.value > plan.step.high / plan.step.value
    text = CliRunner().invoke(app, ["plan", "train", "llama3-8b", "--batch", "64"]).output
    assert f"{plan.figures['mfu'].value:.1%}".rstrip("%") in text and "assumed)" in text


def test_each_row_of_the_ledger_and_of_the_front_has_an_interval():
    plan = plan_training(
        ask("llama3-8b", "h100", gpus=8, batch=64, tokens=1e12, price="2.5/h", sample_time="3 s", workers=2)
    )
    assert {"data loading", "matmuls"} <= {row.detail for row in plan.ledger}
    for row in plan.ledger:
        assert row.low_ms < row.ms < row.high_ms and row.provenance
    # entries are off in part independently, so that their ends add up to more than the step's
    assert sum(row.high_ms for row in plan.ledger) >= 1000 * plan.step.high
    for option in plan.front:
        for key, figure in option.figures.items():
            assert figure.low < figure.value < figure.high and figure.value == getattr(option, key)
        assert {"step_s", "memory_gb", "gpu_hours", "dollars"} <= set(option.figures)
    best = next(option for option in plan.front if option.gpus == 8).figures
    assert best["step_s"].interval == pytest.approx((plan.step.low, plan.step.high))
    assert best["memory_gb"].low == pytest.approx(plan.memory.low / 1e9)


def test_a_plan_beyond_the_published_runs_is_called_an_extrapolation():
    notes = plan_training(ask("llama3-8b", "h100", gpus=65536, batch=65536, tp=1, pp=1, cp=1)).notes
    assert any("65,536 GPUs are more than published runs have" in note for note in notes)
    assert not plan_training(ask("llama3-8b", "h100", gpus=8, batch=64)).notes


def test_a_mixture_goes_at_the_pace_of_the_slowest():
    mixed, slow = (
        plan_training(ask("llama3-8b", name, gpus=16, batch=64)) for name in ("h100:1+a100:1", "a100")
    )
    assert mixed.step.value == pytest.approx(slow.step.value, rel=0.01)
    assert "pace of the slowest" in mixed.notes[0]


def test_an_oversubscribed_network_lengthens_the_exchange():
    fixed = {"gpus": 64, "batch": 256, "tp": 1, "pp": 1, "cp": 1, "sharding": "fsdp", "shard": 64}
    plain, crossed = (
        plan_training(ask("llama3-8b", "h100", assume=assume, recompute="full", **fixed)).step.value
        for assume in ([], ["oversubscription=16"])
    )
    assert crossed > 1.05 * plain  # most of the exchange stays within a node


def test_the_derivation_ends_with_the_step():
    question = ask("llama3-8b", "h100", gpus=8, batch=64)
    plan = plan_training(question)
    lines = derivation(question, plan)
    assert lines[-1].startswith("step: ")
    assert float(lines[-1].split()[1]) == pytest.approx(1000 * plan.step.value, rel=1e-3)


def test_dollars_choose_fewer_gpus_than_time():
    asked = {"gpus": 64, "batch": 256, "tokens": 1e11, "price": "2/h"}
    cheap = plan_training(ask("llama3-8b", "h100", objective="dollars", **asked))
    fast = plan_training(ask("llama3-8b", "h100", **asked))
    assert cheap.gpus < fast.gpus and cheap.dollars < fast.dollars and cheap.hours > fast.hours
    within = fast.hours * 1.01
    assert plan_training(ask("llama3-8b", "h100", objective="dollars", within=within, **asked)).gpus == 64


def test_launch_files_start_the_planned_layout():
    plan = plan_training(ask("llama3-70b", "h100", gpus=64, batch=64, tp=8, shard=None))
    files = launch_files(plan)
    degrees = tomllib.loads(files["torchtitan.toml"])["parallelism"]
    size = 1
    for name in ("data_parallel_replicate", "data_parallel_shard", "tensor_parallel", "context_parallel"):
        size *= degrees[f"{name}_degree"]
    assert size * degrees["pipeline_parallel_degree"] == 64 and degrees["tensor_parallel_degree"] == 8
    assert "--nnodes 8 --nproc-per-node 8" in files["megatron.sh"]
    assert "--tensor-model-parallel-size 8" in files["megatron.sh"]


def test_memory_over_by_one_byte_does_not_fit():
    question = ask(
        "llama3-8b", "h100", gpus=8, batch=64, tp=1, pp=1, cp=1, micro=1, sharding="fsdp", recompute="full"
    )
    size = plan_training(question).memory.value
    only = replace(question, wanted=question.wanted | {"shard": 0})
    assert plan_training(replace(only, memory=size)).memory.value <= size
    least = min(plan_training(only).memory.value, size)
    with pytest.raises(BadInputError, match="1 B too much"):
        plan_training(replace(only, memory=np.nextafter(least, 0) if least < 2**53 else least - 1))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"tp": 7}, "does not divide the 32 attention heads; the nearest that works is tp=8"),
        ({"tp": 4, "pp": 4}, "needs 16 GPUs, and there are 8; the nearest that works is --gpus 16"),
        ({"gpus": 6, "tp": 4}, "nearest that works is --gpus 4"),
        ({"gpus": 64, "pp": 64}, "32 layers, too few for pp=64"),
        ({"precision": "fp4"}, "no matrix rate for fp4"),
        ({"stack": "megatrn"}, "the nearest is megatron"),
        ({"stack": "fsdp-26.02"}, "not a known stack"),
        ({"objective": "dollars"}, "price of a GPU hour"),
        ({"sharding": "zero9"}, "choose one of ddp"),
        ({"batch": 7, "tp": 1, "pp": 1, "cp": 1}, "the nearest that works is --batch 8"),
        ({"gpus": 7, "tp": 7}, "the nearest that works is tp=1"),
        ({"ep": 8}, "llama3-8b has no experts to spread; leave --ep out"),
        ({"model": "mixtral-8x7b", "ep": 3}, "the nearest that works is ep=4"),
        ({"model": "mixtral-8x7b", "ep": 16}, "does not spread 8 experts over 8 GPUs"),
        ({"cp": 8, "seq": 4096}, "the nearest that works is cp=4"),
        ({"pp": 4, "vpp": 7}, "7 chunks in 4 stages do not divide the 32 layers"),
        ({"pp": 1, "vpp": 2}, "the nearest that works is vpp=1"),
        ({"micro": 3}, "the nearest that works is micro=4"),
        ({"micro": 128}, "the nearest that works is micro=64"),
        ({"shard": 3}, "the nearest that works is --shard 4"),
        ({"shard": 8, "sharding": "ddp"}, "the nearest that works is --sharding fsdp"),
        ({"pp": 2, "sharding": "zero2"}, "the nearest that works is --sharding zero1"),
        ({"model": "llama3.1-405b"}, "the nearest that works is --gpus 128"),
        ({"precision": "int8"}, "no matrix rate for int8; choose one of bf16, fp16, fp8, mxfp8"),
        ({"precision": "fp32"}, "choose one of bf16, fp16"),
        ({"stack": "megatron-99.99"}, "the nearest that works is megatron-26.06"),
        ({"stack": "megatron-25.13"}, "the nearest that works is megatron-25.12"),
        ({"stack": "megatron-19.01"}, "the nearest that works is megatron-23.01"),
        ({"gpus": 37, "batch": 3, "seq": 1000}, "the nearest that works is --batch 37"),
        ({"tp": 6, "cp": 3, "ep": 4}, "heads; the nearest that works is tp=8 cp=4 --gpus 32 without --ep"),
        ({"on": __file__}, "is not a machine file; give the JSON file of a measured machine"),
        ({"within": 5.0}, "give --tokens, like 1e12"),
        ({"within": 5.0, "tokens": 1e12}, "No layout ends within 5 h; the nearest that works takes"),
        ({"memory": "76"}, "memory is a figure in B; write one like memory=76 GB"),
        ({"assume": ["hbm=4.2"]}, "hbm is a figure in B/s; write one like hbm=4.2 TB/s"),
        ({"memory": "1 GB"}, "No layout fits"),
        ({"parameters": 7e9}, "does not use parameters; leave it out"),
    ],
)
def test_impossible_asks_are_answered_in_one_sentence(asked, words):
    with pytest.raises(BadInputError, match=words) as error:
        plan_training(ask(**({"model": "llama3-8b", "gpus": 8, "batch": 64} | asked)))
    assert str(error.value).count(". ") == 0


@pytest.mark.parametrize(
    "asked",
    [
        *({name: 7} for name in ("tp", "ep", "cp", "pp", "vpp", "micro", "shard")),
        *({name: 100, "gpus": 96, "batch": 96} for name in ("tp", "ep", "cp", "vpp", "micro", "shard")),
        {"tp": 2, "pp": 3, "gpus": 32},
        {"batch": 13, "tp": 2, "pp": 1, "cp": 1},
        {"cp": 16, "seq": 10_000, "gpus": 16},
        {"memory": "4 GB"},
    ],
)
def test_the_nearest_that_works_works(asked):
    asked = {"model": "mixtral-8x7b", "gpus": 8, "batch": 64, "memory": "1 TB"} | asked
    with pytest.raises(BadInputError, match="nearest that works is") as error:
        plan_training(ask(**asked))
    names = re.search(r"nearest that works is (?:--)?(\w+)[= ](\d+)", str(error.value))
    plan_training(ask(**(asked | {names[1]: int(names[2])})))


def test_sizes_beyond_those_of_a_search_can_be_wanted():
    asked = {"gpus": 32, "batch": 4000, "seq": 128, "memory": "1 TB", "tp": 1, "pp": 1, "cp": 1}
    assert plan_training(ask("gpt2", micro=125, **asked)).layout.micro == 125
    assert plan_training(ask("gpt2", shard=4, **asked)).layout.shard == 4
    assert plan_training(ask("gpt2", shard=32, sharding="fsdp", **asked)).layout.shard == 0


def test_every_precision_has_the_rate_of_its_constant():
    at = rates(system=hardware("gb300"))
    assert at.matmul("nvfp4") < 0.85 * at.peaks["fp4"] * at.matmul_share["bf16"]
    for precision, dtype in (("bf16", "bf16"), ("fp8", "fp8"), ("mxfp8", "fp8"), ("nvfp4", "fp4")):
        share = at.matmul_share["fp4" if precision == "nvfp4" else precision]
        assert at.matmul(precision) == pytest.approx(at.peaks[dtype] * share)


def test_names_of_precisions_are_those_of_the_field():
    plans = [plan_training(ask("gpt2", gpus=8, batch=64, seq=1024, precision=p)) for p in ("BF16", "float16")]
    assert [plan.precision for plan in plans] == ["bf16", "fp16"]
    assert plans[0].step.value == pytest.approx(plans[1].step.value)


def test_fractions_of_a_million_layouts_are_ranked_in_pieces():
    job = Job(65536, 4096, 1024)
    at = layouts(model("deepseek-v3"), job)
    assert len(at) > 60_000  # more than one piece
    seconds_of, peak = rank(model("deepseek-v3"), H100, job, rates(), at, 76e9)
    assert seconds_of.shape == peak.shape == (len(at),)
    assert (np.isfinite(seconds_of) == (peak <= 76e9)).all()


def test_a_measured_machine_plans_like_its_system(tmp_path):
    with zipfile.ZipFile(EXAMPLES / "train_gpt-counters-h200.fathom.zip") as archive:
        name = next(n for n in archive.namelist() if n.endswith("machine.json"))
        (tmp_path / "here.json").write_bytes(archive.read(name))
    here = plan_training(ask("llama3-8b", str(tmp_path / "here.json"), gpus=8, batch=64))
    h200 = plan_training(ask("llama3-8b", "h200", gpus=8, batch=64))
    assert here.step.value == pytest.approx(h200.step.value, rel=0.05)
    assert here.provenance == "measured here" and here.notes == []


@pytest.mark.parametrize("sharding", ["ddp", "zero1", "zero2", "fsdp"])
def test_a_wanted_sharding_is_planned(sharding):
    plan = plan_training(ask("gpt2", "h100", gpus=8, batch=64, seq=1024, sharding=sharding))
    assert plan.layout.sharding == sharding


@pytest.mark.parametrize(
    ("layers", "pp", "vpp", "fullest"), [(80, 16, 1, 5), (80, 64, 1, 2), (126, 16, 8, 8)]
)
def test_a_stage_has_whole_layers(layers, pp, vpp, fullest):
    at = SimpleNamespace(pp=np.array([pp]), vpp=np.array([vpp]))
    assert fullest_stage(layers, at) == pytest.approx(fullest / layers)


def test_the_all_reduces_of_the_backward_pass_hide_beside_its_products():
    # arXiv:2205.05198, section 6.2: Megatron-LM of 2022 overlaps them. Of four, or of six with full
    # recomputation, two are hidden but for a share.
    job, shape = Job(2048, 4, 8), model("gpt3-175b")
    at = Layouts(1, 8, micro=4, sharding=DDP, recompute=[NONE, FULL], sp=False)
    sent = {
        name: Step(shape, hardware("a100-80gb"), job, at, rates(name, hardware("a100-80gb"))).entries()
        for name in ("megatron-2021", "megatron-2022")
    }
    before, after = (sent[name]["tensor parallel"] for name in ("megatron-2021", "megatron-2022"))
    share = constants()["beside"]
    assert after / before == pytest.approx([(2 + 2 * share) / 4, (4 + 2 * share) / 6])
    assert (sent["megatron-2021"]["matmuls"] == sent["megatron-2022"]["matmuls"]).all()


def test_the_runs_that_calculon_publishes_are_planned_as_well_as_calculon_plans_them():
    errors = [
        abs(planned / measured - 1)
        for name, (*_, full, selective) in MEASURED.items()
        for planned, measured in zip(predicted(name), (full, selective), strict=True)
    ]
    assert sum(errors) / len(errors) <= CALCULON


def test_runs_that_nothing_was_fitted_to_are_planned_within_a_quarter():
    with DATA.open(encoding="utf-8") as file:
        known = {(row["model"], row["tokens_per_s_per_gpu"]) for row in csv.DictReader(file)}
    rows = runs()["training"]
    assert not known & {
        (row["model"], str(row.get("tokens_per_s_per_gpu"))) for row in rows if isinstance(row["model"], str)
    }
    errors = [predict_s(run, constants()) / run.step_s - 1 for run in map(run_of, rows)]
    assert np.median(np.abs(errors)) < 0.12 and np.max(np.abs(errors)) < 0.25


def test_checkpoints_without_reentry_skip_the_last_product():
    # of 12 h² in a layer of GPT, the last product has 4 h²: 2/3 of the forward pass is repeated, or all of it
    shape = replace(model("gpt3-175b"), vocab=128)
    job, at = Job(2048, 8, 8), Layouts(8, recompute=[NONE, FULL])
    bare = {"matmul_bytes": 0.0, "loss_bytes": 0.0}
    for stops, share in ((True, 2 / 3), (False, 1.0)):
        none, full = seconds(shape, job, at, stops_early=stops, **bare)["matmuls"]
        assert full / none == pytest.approx(1 + share / 3, rel=0.002)


def test_all_ranks_wait_for_the_slowest_by_the_jitter_of_one():
    job, at = Job(8192, 64, 64), Layouts(64, sharding=FSDP)
    entries = {name: float(value[0]) for name, value in seconds(LLAMA, job, at).items()}
    rest = sum(value for name, value in entries.items() if name != "slowest rank")
    drawn = np.random.default_rng(0).normal(size=(4000, 64)).max(1).mean()
    assert entries["slowest rank"] / rest == pytest.approx(H100["jitter"].value * drawn, rel=0.05)


def test_narrow_weights_are_converted_once_a_step():
    def converting(casts_once, batch):
        job = Job(512, batch, 1, "fp8")
        none, all_ = (
            float(seconds(LLAMA, job, Layouts(1), casts_once=casts_once, cast=cast)["matmuls"][0])
            for cast in (0.0, 1.0)
        )
        return all_ - none

    again = (
        4.0 * (LLAMA.parameters - 2 * LLAMA.embedding) / rates().hbm
    )  # two bytes are read, one written twice
    for batch in (2, 16):
        assert converting(False, batch) - converting(True, batch) == pytest.approx(
            (batch - 1) * again, rel=0.01
        )


def test_ranks_of_experts_fill_a_node_whatever_splits_the_tokens():
    shape, job = model("mixtral-8x7b"), Job(4096, 64, 64)
    sent = [
        float(seconds(shape, job, Layouts(64 // tp, tp=tp, ep=8), moe_host_s=0.0)["expert parallel"][0])
        for tp in (1, 2)
    ]
    assert (
        sent[1] < 1.1 * sent[0]
    )  # within the node for both; each rank has half of the tokens, twice as often
