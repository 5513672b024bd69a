"""Comparing machines: a recorded H200 with one change at a time, and damaged files."""

from __future__ import annotations

import copy
import json
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from fathom.cli.main import app
from fathom.machine import MachineFileError
from fathom.machine.compare import compare
from fathom.machine.compare.rules import READERS, rules
from tests.support.paths import EXAMPLES
from tests.support.running import run_fathom

KEPT = EXAMPLES / "train_gpt-h200.fathom.zip"
LAPTOP = {
    "fingerprint": "0000000000000001",
    "gpus": [],
    "versions": {"python": "3.12.1", "torch": "2.11.0+cpu"},
    "host": {"cpu": {"model": "Some CPU", "architecture": "x86_64", "logical_cores": 4, "numa_nodes": 1}},
}


def recorded() -> dict:
    """The machine of the kept sounding, as it was written on the H200."""
    with zipfile.ZipFile(KEPT) as archive:
        return json.loads(archive.read("machine.json"))


def full() -> dict:
    """The recorded machine with what a later inventory knows besides."""
    machine = recorded()
    machine["gpus"][0] |= {
        "multiprocessors": 132,
        "l2_bytes": 62914560,
        "pcie_width_max": 16,
        "numa_node": None,
    }
    machine["versions"] |= {"torch": "2.11.0+cu130", "cuda": "13.0", "cudnn": "9.13.0", "triton": "3.6.0"}
    machine["host"] |= {
        "rdma": [],
        "limits": {"shm_bytes": 1 << 30},
        "filesystems": [{"type": "ext4", "disk": "v"}],
    }
    machine["host"]["cpu"]["features"] = ["avx512f", "amx_bf16"]
    return machine


def ceiling(name, value, unit="B/s", spread=0.01, device=0):
    low, high = value * (1 - spread), value * (1 + spread)
    return {
        "id": name,
        "value": value,
        "unit": unit,
        "low": low,
        "high": high,
        "samples": 9,
        "device": device,
    }


def severities(result):
    return {difference.id: difference.severity for difference in result.differences}


def kinds(result):
    return {kind.id: kind.severity for kind in result.kinds}


def test_a_machine_and_itself_are_alike():
    result = compare(full(), full(), "a", "b")
    assert set(kinds(result).values()) == {"carries over"}
    assert result.headline == "Everything compared carries over from a to b."


def test_without_a_gpu_nothing_tuned_on_one_carries_over():
    result = compare(recorded(), LAPTOP, "train.fathom", "laptop.json")
    for kind in ("tiles", "backends", "precision", "batch", "overlap", "time", "copies", "workers"):
        assert kinds(result)[kind] == "does not carry over", kind
    assert "laptop.json has no GPU, train.fathom has NVIDIA H200" in result.headline
    back = compare(LAPTOP, recorded(), "laptop.json", "train.fathom")
    assert kinds(back)["tiles"] == "does not carry over" and "laptop.json has no GPU" in back.headline


def gpu(**change):
    return lambda machine: machine["gpus"][0].update(change)


def version(**change):
    return lambda machine: machine["versions"].update(change)


def host(**change):
    return lambda machine: machine["host"].update(change)


def cpu(**change):
    return lambda machine: machine["host"]["cpu"].update(change)


def second_gpu(machine):
    machine["gpus"].append({**machine["gpus"][0], "index": 1, "uuid": "GPU-2"})


LOST, CHECK = "does not carry over", "check again"


@pytest.mark.parametrize(
    ("change", "rule", "severity", "spoils"),
    [
        (
            gpu(compute_capability="10.0", name="NVIDIA B200"),
            "gpu.architecture",
            LOST,
            ["tiles", "precision"],
        ),
        (gpu(name="NVIDIA H100 80GB HBM3"), "gpu.balance", LOST, ["backends"]),
        (gpu(name="NVIDIA H200 NVL"), "gpu.model", CHECK, ["backends"]),
        (gpu(multiprocessors=114), "gpu.multiprocessors", LOST, ["tiles"]),
        (gpu(memory_bytes=85 << 30), "gpu.memory", LOST, ["batch"]),
        (gpu(l2_bytes=50 << 20), "gpu.l2", CHECK, ["tiles"]),
        (gpu(power_limit_w=500.0), "gpu.power_limit", LOST, ["time"]),
        (gpu(sm_clock_max_mhz=1410), "gpu.clock", CHECK, ["tiles"]),
        (gpu(mig=True), "gpu.mig", LOST, ["batch"]),
        (gpu(ecc=False), "gpu.ecc", CHECK, ["batch"]),
        (gpu(pcie_generation=4), "pcie", LOST, ["copies"]),
        (gpu(pcie_width=8, pcie_width_max=8), "pcie", LOST, ["copies", "input"]),
        (second_gpu, "gpu.count", LOST, ["overlap"]),
        (version(driver="570.86.10"), "driver", CHECK, ["compile"]),
        (version(cuda="12.8"), "cuda", CHECK, ["numerics"]),
        (version(cudnn="9.7.1"), "cudnn", CHECK, ["backends"]),
        (version(torch="2.10.1+cu130"), "torch", CHECK, ["compile"]),
        (version(triton="3.5.0"), "triton", CHECK, ["tiles"]),
        (version(python="3.11.9"), "python", CHECK, ["workers"]),
        (cpu(architecture="aarch64"), "cpu.architecture", LOST, ["host_kernels"]),
        (cpu(features=["avx2"]), "cpu.instructions", LOST, ["host_kernels"]),
        (cpu(model="AMD EPYC 9654"), "cpu.model", CHECK, ["input"]),
        (cpu(quota_cores=4.0), "cpu.cores", LOST, ["workers"]),
        (cpu(numa_nodes=2), "cpu.numa", CHECK, ["workers"]),
        (host(memory_bytes=1 << 34), "host.memory", CHECK, ["input"]),
        (host(limits={"shm_bytes": 64 << 20}), "host.shm", CHECK, ["workers"]),
        (host(filesystems=[{"type": "nfs4"}]), "host.disk", CHECK, ["input"]),
        (host(rdma=[{"ports": [{"rate_gbps": 400.0}]}]), "rdma", CHECK, ["overlap"]),
        (host(virtual_machine=None), "host.virtual", CHECK, ["overlap"]),
    ],
)
def test_each_single_difference_is_found_with_its_consequences(change, rule, severity, spoils):
    other = full()
    change(other)
    result = compare(full(), other)
    assert severities(result)[rule] == severity
    for kind in spoils:
        assert kinds(result)[kind] in (severity, LOST)
    [difference] = [d for d in result.differences if d.id == rule]
    assert difference.a != difference.b and difference.why


@pytest.mark.parametrize(
    "change",
    [
        version(driver="580.200.01"),
        version(torch="2.11.0+cu128"),
        version(cudnn="9.13.9"),
        gpu(uuid="GPU-other", vbios="1"),
        gpu(power_limit_w=701.0),
        gpu(pcie_generation=1, pcie_generation_max=5),  # an idle link
        host(hostname="elsewhere"),
        host(kernel="5.15.0"),
        host(memory_bytes=1 << 40),  # more is no loss
        host(container="podman"),
    ],
)
def test_harmless_differences_have_no_consequences(change):
    other = full()
    change(other)
    assert set(kinds(compare(full(), other)).values()) == {"carries over"}


def test_links_matter_between_several_gpus_only():
    def pair(cell):
        machine = full()
        second_gpu(machine)
        machine["links"] = {
            "names": ["GPU0", "GPU1", "mlx5_0"],
            "matrix": [["X", cell, "PIX"], [cell, "X", "SYS"]],
        }
        return machine

    result = compare(pair("NV18"), pair("PHB"))
    assert severities(result)["links"] == LOST and kinds(result)["overlap"] == LOST
    assert "links" not in severities(compare(full(), full()))


def test_fixed_hardware_carries_over_even_if_one_file_lacks_it():
    result = compare(recorded(), recorded(), "a", "b")
    alike = {difference.id for difference in result.differences if difference.severity == "carries over"}
    assert {"gpu.multiprocessors", "gpu.l2", "cpu.instructions"} <= alike
    silent = {entry.what: entry.why for entry in result.abstained}
    assert silent["cuDNN"] == silent["/dev/shm"] == "a and b do not say"
    [tiles] = [kind for kind in result.kinds if kind.id == "tiles"]
    assert tiles.unknown == ["CUDA", "Triton"]
    other = recorded() | {"fingerprint": "0000000000000002"}
    assert "L2 cache" in {entry.what for entry in compare(recorded(), other).abstained}


def test_a_recording_equals_itself_in_missing_values_too(files):
    document = json.loads(run_fathom("machine", "compare", KEPT, KEPT, "--json", cwd=files).stdout)
    assert {kind["severity"] for kind in document["kinds"]} == {"carries over"}
    assert [entry["what"] for entry in document["abstained"]] == ["ceilings"]
    copied = files / "copy.zip"
    copied.write_bytes(KEPT.read_bytes())
    document = json.loads(run_fathom("machine", "compare", KEPT, "copy.zip", "--json", cwd=files).stdout)
    severity = {kind["id"]: kind["severity"] for kind in document["kinds"]}
    assert severity["tiles"] == severity["time"] == "carries over"
    assert severity["workers"] == "check again"


def test_values_missing_on_one_side_abstain_and_must_be_checked():
    result = compare(full(), recorded() | {"fingerprint": "2"}, "new.json", "old.fathom")
    silent = {entry.what: entry.why for entry in result.abstained}
    assert silent["cuDNN"] == silent["L2 cache"] == "old.fathom does not say"
    assert kinds(result)["backends"] == "check again"
    [backends] = [kind for kind in result.kinds if kind.id == "backends"]
    assert "cuDNN" in backends.unknown and backends.because == []


def with_ceilings(*ceilings):
    return {**full(), "ceilings": list(ceilings)}


def test_ceilings_within_their_spreads_are_the_same():
    a = with_ceilings(
        ceiling("hbm.read", 4.40e12), ceiling("latency.launch", 2.0e-6, "s"), ceiling("l2.read", 8e12)
    )
    b = with_ceilings(
        ceiling("hbm.read", 4.45e12), ceiling("latency.launch", 4.0e-6, "s"), ceiling("hbm.copy", 4e12)
    )
    result = compare(a, b, "a", "b")
    by_id = {ratio.id: ratio for ratio in result.ceilings}
    assert by_id["hbm.read"].verdict == "same" and by_id["hbm.read"].ratio == pytest.approx(4.45 / 4.40)
    assert by_id["latency.launch"].verdict == "slower" and by_id["latency.launch"].ratio == pytest.approx(2)
    assert by_id["hbm.read"].low == pytest.approx(4.45 * 0.99 / (4.40 * 1.01))
    assert {(e.what, e.why) for e in result.abstained} >= {
        ("l2.read", "measured on a only"), ("hbm.copy", "measured on b only"),
    }  # fmt: skip


def test_the_balance_is_measured_where_both_were_measured():
    def machine(read, rate):
        return with_ceilings(ceiling("hbm.read", read), ceiling("matmul.bf16", rate, "FLOP/s"))

    result = compare(machine(4.4e12, 780e12), machine(2.2e12, 780e12))
    assert severities(result)["gpu.balance"] == LOST
    [balance] = [d for d in result.differences if d.id == "gpu.balance"]
    assert (balance.a, balance.b) == ("177.3 FLOP/B", "354.5 FLOP/B")


@given(st.floats(1e3, 1e15), st.floats(1e3, 1e15), st.floats(0, 0.2), st.floats(0, 0.2))
@settings(max_examples=60)
def test_a_ratio_and_its_way_back_agree(x, y, spread_x, spread_y):
    a, b = (
        with_ceilings(ceiling("hbm.copy", x, spread=spread_x)),
        with_ceilings(ceiling("hbm.copy", y, spread=spread_y)),
    )
    there, back = compare(a, b).ceilings[0], compare(b, a).ceilings[0]
    assert there.low <= there.ratio <= there.high
    assert there.ratio * back.ratio == pytest.approx(1) and there.low * back.high == pytest.approx(1)
    opposite = {"same": "same", "faster": "slower", "slower": "faster"}
    assert back.verdict == opposite[there.verdict]
    assert (there.verdict == "same") == (
        x * (1 - spread_x) <= y * (1 + spread_y) and y * (1 - spread_y) <= x * (1 + spread_x)
    )


def test_several_gpus_are_compared_by_the_first_that_was_measured():
    a = with_ceilings(ceiling("hbm.copy", 3e12, device=1), ceiling("hbm.copy", 4e12, device=0))
    b = with_ceilings(ceiling("hbm.copy", 4e12, device=2), ceiling("host.copy", 1e11, device=None))
    assert [ratio.ratio for ratio in compare(a, b).ceilings] == [1]


def test_two_machines_without_gpus_have_no_gpu_results():
    assert not {"tiles", "copies"} & set(kinds(compare(LAPTOP, LAPTOP)))


def test_rules_are_sound():
    known = rules()
    assert len({rule.id for rule in known.rules}) == len(known.rules)
    for rule in known.rules:
        assert set(rule.spoils) <= set(known.kinds), rule.id
        assert rule.spoils or rule.severity == "carries over"
        for name in rule.reads:
            assert name in READERS or name.partition(".")[0] in ("version", "gpu", "cpu", "host"), name
    assert {kind for rule in known.rules for kind in rule.spoils} == set(known.kinds)
    assert set(known.of_gpu) <= set(known.kinds)


@pytest.mark.parametrize(
    "damage",
    [
        lambda m: m.update(gpus="none"),
        lambda m: m.update(gpus=[7]),
        lambda m: m.pop("gpus"),
        lambda m: m.update(host=None),
        lambda m: m["host"].update(cpu=[]),
        lambda m: m["gpus"][0].update(memory_bytes="much"),
        lambda m: m.update(versions={"torch": 2}),
        lambda m: m.update(fingerprint=3),
        lambda m: m.update(links={"matrix": [[1]]}),
        lambda m: m.update(ceilings={}),
        lambda m: m.update(ceilings=[{"id": "hbm.copy"}]),
        lambda m: m.update(ceilings=[ceiling("hbm.copy", -1.0)]),
        lambda m: m.update(ceilings=[ceiling("hbm.copy", float("nan"))]),
        lambda m: m.update(ceilings=[{**ceiling("hbm.copy", 1.0), "low": 2.0}]),
        lambda m: m.update(ceilings=[{**ceiling("hbm.copy", 1.0), "high": float("inf")}]),
    ],
)
def test_a_damaged_file_is_named_in_one_sentence(damage):
    bad = copy.deepcopy(full())
    damage(bad)
    with pytest.raises(MachineFileError, match=r"bad\.json") as error:
        compare(full(), bad, "good.json", "bad.json")
    assert "\n" not in str(error.value)


def test_ragged_links_and_huge_files_do_not_crash():
    machine = full()
    second_gpu(machine)
    machine["links"] = {"names": ["GPU0"], "matrix": [["X"]]}
    assert "links between GPUs" in {entry.what for entry in compare(machine, machine).abstained}
    machine["gpus"] *= 3000
    assert compare(machine, machine).a.gpus == 6000


@pytest.fixture
def files(tmp_path):
    (tmp_path / "laptop.json").write_text(json.dumps(LAPTOP))
    return tmp_path


def test_a_sounding_from_an_h200_beside_a_machine_without_a_gpu(files):
    done = run_fathom("machine", "compare", KEPT, "laptop.json", cwd=files)
    assert done.returncode == 0 and done.stderr == ""
    first = " ".join(done.stdout.split())
    assert first.startswith("From train_gpt-h200.fathom.zip to laptop.json")
    assert "laptop.json has no GPU" in first and "✗ tile and autotuning choices of GPU kernels" in first
    document = json.loads(run_fathom("machine", "compare", KEPT, "laptop.json", "--json", cwd=files).stdout)
    assert {kind["id"]: kind["severity"] for kind in document["kinds"]}["batch"] == "does not carry over"
    # The sounding's manifest knows the program's own torch, which its inventory does not.
    [torch] = [d for d in document["differences"] if d["id"] == "torch"]
    assert torch["a"] == "2.11.0+cu130"


def test_this_machine_is_the_default_second_machine(files):
    (files / "home").mkdir()
    done = run_fathom(
        "machine", "compare", "laptop.json", "--json", cwd=files, FATHOM_HOME=str(files / "home")
    )
    assert json.loads(done.stdout)["b"]["name"] == "this machine"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("none.json", None, "cannot be read"),
        ("empty.json", "", "is not a machine file"),
        ("cut.json", '{"fingerprint": "a", "gp', "is not a machine file"),
        ("list.json", "[]", "has no fingerprint"),
        ("deep.json", "[" * 100_000, "is not a machine file"),
        ("hollow.json", '{"fingerprint": "a"}', "not a valid machine file"),
        ("folder", ..., "is not a sounding"),
        ("bytes.json", "\x00\x01", "is not a machine file"),
    ],
)
def test_bad_inputs_are_one_line_and_a_status(files, name, content, says):
    if content is ...:
        (files / name).mkdir()
    elif content is not None:
        (files / name).write_text(content)
    done = CliRunner().invoke(app, ["machine", "compare", str(files / "laptop.json"), str(files / name)])
    assert done.exit_code == 2 and done.stdout == ""
    assert "remove it" not in done.stderr  # it is the user's file, and may be anything
    assert says in done.stderr and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_an_imported_trace_has_no_machine(files):
    with zipfile.ZipFile(KEPT) as archive:
        (files / "t.fathom").mkdir()
        (files / "t.fathom/manifest.json").write_bytes(archive.read("manifest.json"))
    done = CliRunner().invoke(
        app, ["machine", "compare", str(files / "t.fathom"), str(files / "laptop.json")]
    )
    assert done.exit_code == 2 and "was imported without its machine" in done.stderr


def test_a_truncated_sounding_is_refused(files):
    (files / "cut.fathom.zip").write_bytes(KEPT.read_bytes()[:50_000])
    done = CliRunner().invoke(
        app, ["machine", "compare", str(files / "cut.fathom.zip"), str(files / "laptop.json")]
    )
    assert done.exit_code == 2 and done.stderr.count("\n") == 1
