"""Fixes are exact: their figures are those of the manifest or host at hand, and applied they mend it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fathom.machine.checks import Host, checks, chosen, examine
from fathom.machine.checks.manifest import Pod
from tests.support.machine_check_hosts import cases, fake_host, merged

CASES = cases()


def pod(container: dict[str, Any], name: str = "p", **more: Any) -> Pod:
    spec = {**more.pop("spec", {}), "containers": [{"name": "c", **container}]}
    return Pod("Pod", name, spec, **more)


def judged(check: str, *pods: Pod):
    (result,) = examine(Host(root=Path("/nonexistent"), pods=pods), chosen([f"kubernetes.{check}"]))
    return result


def asking(limits: dict[str, Any], requests: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"resources": {"limits": limits, **({"requests": requests} if requests else {})}, **more}


def applied(command: str) -> dict[str, Any]:
    """The parts of a manifest in a command's comment."""
    pieces = command.removeprefix("# ").split("  #")[0].split("  ")
    return {name: value for piece in pieces for name, value in yaml.safe_load(piece).items()}


amounts = (
    st.integers(1, 200) | st.integers(1, 200_000).map("{}m".format) | st.floats(0.1, 64).map("{:.2f}".format)
)
sizes = st.tuples(st.integers(1, 4096), st.sampled_from(["Mi", "Gi", "G"])).map(
    lambda pair: f"{pair[0]}{pair[1]}"
)
asked = st.fixed_dictionaries({}, optional={"cpu": amounts, "memory": sizes})


@given(limits=asked, requests=asked)
def test_advised_requests_and_limits_are_equal_integers_from_the_container(limits, requests) -> None:
    before = pod(asking(limits, requests))
    result = judged("guaranteed", before)
    if result.status == "fail":
        (command,) = result.commands
        after = applied(command)
        own = {**requests, **limits}
        if {"cpu", "memory"} <= {*own}:
            mended = pod(after)
            assert judged("guaranteed", mended).status == judged("whole_cpus", mended).status == "pass"
            assert after["resources"]["limits"]["memory"] == own["memory"]
        for name in {"cpu", "memory"} - {*own}:
            assert after["resources"]["limits"][name] == f"<{name.upper().replace('CPU', 'CPUS')}>"


@pytest.mark.parametrize(
    ("container", "threads", "why"),
    [
        (asking({"cpu": 4}), 4, "4 CPUs over one process"),
        (asking({"cpu": "7500m"}), 7, "7500m CPUs over one process"),
        (asking({"cpu": "500m"}), 1, "500m CPUs over one process"),
        (asking({"cpu": 96, "nvidia.com/gpu": 8}), 12, "96 CPUs over 8 processes, one per GPU"),
        (asking({"cpu": 32, "nvidia.com/gpu": 1}), 32, "one process"),
        (asking({"cpu": 30}, command=["torchrun", "--nproc_per_node=4", "t.py"]), 7, "4 processes (--nproc"),
        (asking({"cpu": 30}, args=["torchrun", "--nproc-per-node", "3", "t.py"]), 10, "3 processes (--n"),
        (asking({"cpu": 8, "nvidia.com/gpu": 2}, args=["--nproc_per_node=gpu"]), 4, "2 processes, one per"),
    ],
)  # fmt: skip
def test_threads_are_the_containers_cpus_over_its_processes(container, threads, why) -> None:
    (command,) = judged("omp_threads", pod(container)).commands
    assert applied(command) == {"env": [{"name": "OMP_NUM_THREADS", "value": str(threads)}]}
    assert why in command


PRODUCT = "nvidia.com/gpu.product"
GPU = {"nvidia.com/gpu": 1}


@pytest.mark.parametrize(
    ("pods", "wanted"),
    [
        ([pod(asking(GPU))], {PRODUCT: "<MODEL>"}),
        ([pod(asking({"amd.com/gpu": 1}))], {"amd.com/gpu.product-name": "<MODEL>"}),
        ([pod(asking(GPU), labels={PRODUCT: "NVIDIA-L4"})], {PRODUCT: "NVIDIA-L4"}),
        ([pod(asking(GPU), labels={"gpu-team": "vision"})], {PRODUCT: "<MODEL>"}),  # no label of nodes
        (
            [pod(asking(GPU)), pod(asking(GPU), "q", spec={"nodeSelector": {PRODUCT: "NVIDIA-B200"}})],
            {PRODUCT: "NVIDIA-B200"},
        ),
    ],
)
def test_the_gpu_model_is_the_manifests_or_the_readers_to_fill_in(pods, wanted) -> None:
    (command,) = judged("gpu_model", *pods).commands
    assert applied(command) == {"nodeSelector": wanted}


@pytest.mark.parametrize(
    ("memory", "size"), [("32Gi", "16Gi"), ("1500Mi", "750Mi"), ("64G", "29Gi"), (None, "<SIZE>")]
)
def test_shared_memory_is_half_of_the_containers_own(memory, size) -> None:
    limits = {**GPU, **({"memory": memory} if memory else {})}
    (command,) = judged("shm", pod(asking(limits))).commands
    pieces = applied(command)
    assert pieces["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": size}
    mended = pod(
        {**asking(limits), "volumeMounts": pieces["volumeMounts"]}, spec={"volumes": pieces["volumes"]}
    )
    assert judged("shm", mended).status == "pass"
    assert judged("shm_size", mended).status == ("pass" if memory else "fail")


def test_other_figures_are_the_manifests_too() -> None:
    asks = asking({}, {"nvidia.com/gpu": 3})
    assert applied(judged("gpu", pod(asks)).commands[0])["resources"]["limits"] == {"nvidia.com/gpu": 3}
    (image,) = judged("image", pod({"image": "registry:5000/a/b:latest"})).commands
    assert applied(image) == {"image": "registry:5000/a/b@sha256:<DIGEST>"}
    pages = pod(asking({}, {"hugepages-2Mi": "1Gi", "hugepages-1Gi": "4Gi"}))
    pieces = applied(judged("huge_pages", pages).commands[0])
    mended = pod({"resources": pieces["resources"]}, spec={"volumes": pieces["volumes"]})
    assert judged("huge_pages", mended).status == "pass"


def test_a_device_that_another_container_asks_for_is_advised() -> None:
    item, other = pod(asking(GPU), peers=2), pod(asking({**GPU, "rdma/hca_shared": 2}), "q", peers=2)
    assert "limits: {rdma/hca_shared: 2}" in judged("rdma", item, other).commands[0]
    assert "<RDMA_RESOURCE>: <COUNT>" in judged("rdma", item).commands[0]


def test_different_fixes_name_their_subjects_and_equal_ones_appear_once() -> None:
    pods = [pod(asking({"cpu": cpu}), name) for cpu, name in ((2, "a"), (4, "b"), (4, "d"))]
    commands = judged("omp_threads", *pods).commands
    assert [line.rpartition("# ")[2] for line in commands] == [
        "Pod/a, container c",
        "Pod/b, container c, Pod/d, container c",
    ]
    assert len(judged("omp_threads", *pods[1:]).commands) == 1


def test_no_value_of_a_manifest_leaves_its_comment() -> None:
    hostile = pod({"image": "a\nrm -rf /\n"}, "x\nrm", spec={"nodeSelector": {"gpu": "y\nrm"}})
    for result in examine(Host(root=Path("/nonexistent"), pods=[hostile]), chosen(["kubernetes"])):
        assert all(line.startswith("#") and "\n" not in line for line in result.commands)


@pytest.mark.parametrize(
    ("name", "more", "commands"),
    [
        ("container.cpu_quota", {}, ["--cpuset-cpus=2-4 ", "OMP_NUM_THREADS=2"]),
        ("container.cpu_throttled", {}, ["--cpuset-cpus=<CPUS> "]),
        (
            "container.cpu_throttled",
            {"affinity": "0-7", "files": {"sys/fs/cgroup/cpu.max": "150000 100000\n"}},
            ["--cpuset-cpus=0-1 "],
        ),
        ("container.cpuset_nodes", {}, ["--cpuset-cpus=0-3 --cpuset-mems=0 "]),
        ("container.memory_limit", {}, ["--memory=11g "]),
        ("container.shm", {}, ["--shm-size=<SIZE> "]),
        (
            "container.shm",
            {"files": {"proc/meminfo": "MemTotal:  33554432 kB\n", "proc/self/cgroup": "0::/\n"}},
            ["--shm-size=16g "],
        ),
        (
            "container.shm",
            {
                "files": {
                    "proc/meminfo": "MemTotal:  33554432 kB\n",
                    "proc/self/cgroup": "0::/\n",
                    "sys/fs/cgroup/memory.max": f"{12 << 30}\n",
                }
            },
            ["--shm-size=6g "],
        ),
        ("container.data_on_overlay", {}, [":/data -w /data "]),
        ("container.data_on_overlay", {"environment": {"HF_HOME": "/root/hf"}}, ["-e HF_HOME=/data/hf_home"]),
        ("libraries.torch_without_cuda", {}, ["/whl/cu130"]),
        ("libraries.torch_without_cuda", {"system": {"nvmlSystemGetCudaDriverVersion_v2": 12070}}, ["cu126"]),
        ("libraries.torch_without_cuda", {"system": {"nvmlSystemGetCudaDriverVersion_v2": 11020}}, []),
    ],
)
def test_fixes_of_a_host_have_its_own_figures(name, more, commands, tmp_path: Path) -> None:
    host = fake_host(tmp_path, merged(CASES[name]["host"], more))
    (result,) = examine(host, [row for row in checks() if row.id == name])
    assert len(result.commands) == len(commands)
    assert all(wanted in line for wanted, line in zip(commands, result.commands, strict=True))
