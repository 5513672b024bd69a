"""Manifests of every kind that runs pods, and files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.errors import BadInputError
from fathom.machine.checks import Host, chosen, examine, pods
from fathom.machine.checks.resources import quantity

GOOD = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: train
  annotations: {kueue.x-k8s.io/podset-required-topology: rack}
  labels: {kueue.x-k8s.io/queue-name: team}
spec:
  pytorchReplicaSpecs:
    Master: &replica
      replicas: 1
      restartPolicy: OnFailure
      template:
        metadata: {labels: {kueue.x-k8s.io/queue-name: team}}
        spec:
          nodeSelector: {nvidia.com/gpu.product: NVIDIA-H200}
          priorityClassName: training
          terminationGracePeriodSeconds: 300
          volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 64Gi}}]
          containers:
          - name: pytorch
            image: registry/train@sha256:0123
            env: [{name: OMP_NUM_THREADS, value: "8"}]
            resources: {limits: {cpu: 96, memory: 1Ti, nvidia.com/gpu: 8, rdma/hca: 8}}
            securityContext: {capabilities: {add: [IPC_LOCK]}}
            volumeMounts: [{name: shm, mountPath: /dev/shm}]
    Worker:
      <<: *replica
      replicas: 3
"""
TEMPLATE = "spec: {containers: [{name: c, image: a:1}]}"


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "m.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def judge(folder: Path, text: str):
    host = Host(root=folder, pods=pods([written(folder, text)]))
    return {result.id: result for result in examine(host, chosen(["kubernetes"]))}


def test_a_good_training_job_fails_nothing(tmp_path: Path) -> None:
    result = judge(tmp_path, GOOD)
    assert not [r.observed for r in result.values() if r.status in ("fail", "abstained")]
    assert result["kubernetes.rdma"].status == "pass"


def test_results_name_object_role_and_container(tmp_path: Path) -> None:
    subjects = judge(tmp_path, GOOD)["kubernetes.gpu"].subjects
    assert [s["subject"] for s in subjects] == [
        "PyTorchJob/train Master, container pytorch",
        "PyTorchJob/train Worker, container pytorch",
    ]


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        (f"kind: Pod\nmetadata: {{name: a}}\n{TEMPLATE}", ["Pod/a"]),
        (f"kind: Job\nmetadata: {{name: a}}\nspec: {{template: {{{TEMPLATE}}}}}", ["Job/a"]),
        (
            "kind: CronJob\nmetadata: {name: a}\n"
            f"spec: {{jobTemplate: {{spec: {{template: {{{TEMPLATE}}}}}}}}}",
            ["CronJob/a"],
        ),
        (f"kind: Deployment\nmetadata: {{name: a}}\nspec: {{template: {{{TEMPLATE}}}}}", ["Deployment/a"]),
        (f"kind: StatefulSet\nmetadata: {{name: a}}\nspec: {{template: {{{TEMPLATE}}}}}", ["StatefulSet/a"]),
        (
            "kind: MPIJob\nmetadata: {name: a}\n"
            f"spec: {{mpiReplicaSpecs: {{Worker: {{template: {{{TEMPLATE}}}}}}}}}",
            ["MPIJob/a Worker"],
        ),
        (
            "kind: LeaderWorkerSet\nmetadata: {name: a}\nspec: {leaderWorkerTemplate: {size: 4, "
            f"leaderTemplate: {{{TEMPLATE}}}, workerTemplate: {{{TEMPLATE}}}}}}}",
            ["LeaderWorkerSet/a leader", "LeaderWorkerSet/a worker"],
        ),
        (
            "kind: JobSet\nmetadata: {name: a}\n"
            "spec: {replicatedJobs: [{name: w, template: {spec: {parallelism: 2, "
            f"template: {{{TEMPLATE}}}}}}}}}]}}",
            ["JobSet/a w"],
        ),
        (
            f"kind: List\nitems: [{{kind: Pod, metadata: {{name: a}}, {TEMPLATE}}}, {{kind: Service}}]",
            ["Pod/a"],
        ),
        (
            f"kind: Service\n---\nkind: Pod\nmetadata: {{name: a}}\n{TEMPLATE}\n"
            f"---\n---\nkind: Pod\n{TEMPLATE}\n",
            ["Pod/a", "Pod/unnamed"],
        ),
    ],
)
def test_pods_are_found_in_every_kind(text: str, titles: list[str], tmp_path: Path) -> None:
    assert [pod.title for pod in pods([written(tmp_path, text)])] == titles


def test_a_leader_and_its_workers_are_counted_once(tmp_path: Path) -> None:
    text = (
        "kind: LeaderWorkerSet\nspec: {leaderWorkerTemplate: {size: 4, "
        f"leaderTemplate: {{{TEMPLATE}}}, workerTemplate: {{{TEMPLATE}}}}}}}"
    )
    assert {pod.peers for pod in pods([written(tmp_path, text)])} == {4}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: Service\n", "holds Service but no pod; give a Pod"),
        ("kind: ConfigMap\ndata: {x: y}\n---\nkind: Service\n", "holds ConfigMap, Service but no pod; give"),
        ("kind: List\nitems: []", "holds List but no pod; give"),
        ("kind: Pod\nspec: 3", "Pod/unnamed whose pod spec is missing or not a mapping"),
        ("kind: Pod\nmetadata: {name: a}", "Pod/a whose pod spec is missing or not a mapping"),
        ("kind: Pod\nspec: {}", "does not list containers"),
        ("kind: Pod\nspec: {containers: []}", "does not list containers"),
        ("kind: Pod\nspec: {containers: {name: c}}", "does not list containers"),
        ("kind: Pod\nspec: {containers: [{name: c}, 3]}", "does not list containers"),
        (
            "kind: Deployment\nspec: {replicas: 2}",
            "Deployment/unnamed without a pod template at spec.template",
        ),
        ("kind: Job\nspec: {template: 3}", "Job/unnamed whose pod spec is missing"),
        ("kind: MPIJob\nspec: {mpiReplicaSpecs: {Worker: 3}}", "MPIJob/unnamed without a pod template"),
        (f"kind: Pod\n{TEMPLATE}\n---\nkind: Pod\nspec: 3", "Pod/unnamed whose pod spec is missing"),
    ],
)
def test_a_file_without_a_pod_is_refused_in_one_sentence(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as refused:
        pods([written(tmp_path, text)])
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_training_job_without_any_gpu_fails(tmp_path: Path) -> None:
    text = f"kind: PyTorchJob\nspec: {{pytorchReplicaSpecs: {{Worker: {{template: {{{TEMPLATE}}}}}}}}}"
    assert judge(tmp_path, text)["kubernetes.gpu"].status == "fail"


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no object with a `kind` field"),
        ("   \n---\n", "has no object with a `kind` field"),
        ("just a sentence", "has no object with a `kind` field"),
        ("[1, 2]", "has no object with a `kind` field"),
        ("kind: Pod\nspec: {containers: [", "line 2"),
        ("kind: Pod\nspec:\n\tx: 1", "line 3"),
        ("kind: {{ .Values.kind }}\nspec: {}", "line 1"),
        ("kind: !!python/object/apply:os.system ['true']", "line 1"),
        ("kind: Pod\n" + BOMB, "aliases expand"),
        ("&a [*a]", "aliases expand"),
        ("[" * 50_000, "nested too deeply"),
        (b"\xff\xfe\x00\x01", "is not a manifest"),
        (b"\x00" * 100, "is not a manifest"),
        ("kind: Pod\n" + "#" * (1 << 20), "larger than 1 MiB"),
        ("kind: Pod\ndate: 2024-99-99", "is not a manifest"),
    ],
)
def test_invalid_manifests_are_refused_in_one_sentence(text: str | bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as refused:
        pods([written(tmp_path, text)])
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(BadInputError, match="cannot be read"):
            pods([path])


scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(allow_nan=False)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
FIELDS = ("volumes", "affinity", "nodeSelector", "hostNetwork", "restartPolicy", "resources", "metadata")
ASKED = ("resources", "env", "image", "volumeMounts", "securityContext", "name")


@given(
    spec=st.dictionaries(st.sampled_from(FIELDS), anything),
    container=st.dictionaries(st.sampled_from(ASKED), anything),
    containers=st.none() | anything,
)
def test_no_shape_of_a_manifest_breaks_a_check(spec, container, containers) -> None:
    from fathom.machine.checks.manifest import Pod

    limits = {"resources": {"limits": {"nvidia.com/gpu": 1, "rdma/x": container.get("image")}}}
    described = [{**limits, **container}] if containers is None else containers
    pod = Pod("Pod", "p", {**spec, "containers": described}, annotations={}, peers=2)
    for result in examine(Host(root=Path("/nonexistent"), pods=[pod]), chosen(["kubernetes"])):
        assert "unforeseen" not in (result.reason or ""), (result.id, result.reason)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", 0.5),
        (4, 4.0),
        ("1Gi", 2**30),
        ("1G", 1e9),
        ("1e3", 1000.0),
        ("0.5Ki", 512.0),
        (True, None),
        ("-1", None),
        ("1Zi", None),
        ("", None),
        (None, None),
        ("1e99999", None),
    ],
)
def test_quantities(text: object, value: float | None) -> None:
    assert quantity(text) == value
