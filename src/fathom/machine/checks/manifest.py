"""Kubernetes manifests: the pods they describe, whatever object wraps them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from fathom.errors import BadInputError, file_errors
from fathom.machine.checks.model import plain
from fathom.regular import open_regular

STDIN = Path("-")
Container = dict[str, Any]  # as the manifest has it
LARGEST = 1 << 20  # etcd takes no larger object either
MOST_NODES = 100_000  # after expansion of aliases
DEEPEST = 20  # lists within lists

# Where each kind keeps its pod templates; `*` matches every member of a mapping or a list.
TEMPLATES: dict[str, tuple[str, ...]] = {
    "Job": ("spec.template", "spec.tasks.*.template"),
    "CronJob": ("spec.jobTemplate.spec.template",),
    "PyTorchJob": ("spec.pytorchReplicaSpecs.*.template",),
    "TFJob": ("spec.tfReplicaSpecs.*.template",),
    "JAXJob": ("spec.jaxReplicaSpecs.*.template",),
    "MPIJob": ("spec.mpiReplicaSpecs.*.template",),
    "XGBoostJob": ("spec.xgbReplicaSpecs.*.template",),
    "PaddleJob": ("spec.paddleReplicaSpecs.*.template",),
    "LeaderWorkerSet": (
        "spec.leaderWorkerTemplate.leaderTemplate",
        "spec.leaderWorkerTemplate.workerTemplate",
    ),
    "JobSet": ("spec.replicatedJobs.*.template.spec.template",),
    "RayCluster": ("spec.headGroupSpec.template", "spec.workerGroupSpecs.*.template"),
    "RayJob": (
        "spec.rayClusterSpec.headGroupSpec.template",
        "spec.rayClusterSpec.workerGroupSpecs.*.template",
    ),
    **dict.fromkeys(
        ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController"), ("spec.template",)
    ),
}
ROLES = {"leaderTemplate": "leader", "workerTemplate": "worker", "headGroupSpec": "head"}
COUNTS = ("replicas", "parallelism", "size")
TRAINING = frozenset(kind for kind in TEMPLATES if kind.endswith("Job") and kind != "CronJob") | {"JobSet"}


@dataclass(frozen=True)
class Pod:
    """One pod template: its object's kind and name, its role there, and how many pods the object runs."""

    kind: str
    name: str
    spec: dict[str, Any]
    role: str = ""
    annotations: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, Any] = field(default_factory=dict)
    parent: dict[str, Any] = field(default_factory=dict)
    count: int = 1
    peers: int = 1

    @property
    def title(self) -> str:
        return f"{self.kind}/{self.name}{' ' + self.role if self.role else ''}"

    @property
    def containers(self) -> list[tuple[str, Container]]:
        """Return the name and specification of each container."""
        specs = mappings(self.spec.get("containers"))
        return [(str(c.get("name", f"number {i}")), c) for i, c in enumerate(specs)]


def mapping(value: Any) -> dict[str, Any]:
    """Return `value` if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[dict[str, Any]]:
    """Return the mappings in a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def pods(files: Sequence[Path]) -> tuple[Pod, ...]:
    """Return every pod of these files, in order; `-` is standard input. Raises BadInputError."""
    return tuple(pod for file in files for pod in _pods_of(file))


def _pods_of(file: Path) -> list[Pod]:
    documents = _documents(file)
    try:
        templates = [pod for document in documents for pod in _pods(document)]
    except _MalformedError as error:
        raise BadInputError(f"{_called(file)} holds {plain(str(error))}.") from None
    if not templates:
        kinds = ", ".join(dict.fromkeys(str(document["kind"]) for document in documents))
        raise BadInputError(
            f"{_called(file)} holds {plain(kinds)} but no pod; give a Pod, or an object of a kind that "
            f"runs pods ({', '.join(TEMPLATES)})."
        )
    return templates


class _MalformedError(Exception):
    """An object without a usable pod; the message says what it holds instead."""


def _documents(file: Path) -> list[dict[str, Any]]:
    content = _content(file)
    if len(content) > LARGEST:
        raise BadInputError(
            f"{_called(file)} is larger than {LARGEST >> 20} MiB; give the objects that run pods."
        )
    try:
        documents = [*_parse(content.decode())]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInputError(f"{_called(file)} is not a manifest: {plain(_problem(error))}.") from None
    if not documents:
        raise BadInputError(f"{_called(file)} is not a manifest: it has no object with a `kind` field.")
    return documents


def _called(file: Path) -> str:
    return "Standard input" if file == STDIN else str(file)


def _content(file: Path) -> bytes:
    """Read at most one byte more than the size limit."""
    with file_errors(_called(file)):
        if file == STDIN:
            return sys.stdin.buffer.read(LARGEST + 1)
        with open_regular(file) as stream:
            return stream.read(LARGEST + 1)


def _problem(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    mark = getattr(error, "problem_mark", None)
    words = getattr(error, "problem", None) or str(error)
    return f"line {mark.line + 1}: {words} (templates have to be rendered first)" if mark else words


def _parse(text: str) -> Iterator[dict[str, Any]]:
    loader = yaml.SafeLoader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if _size(node, {}) > MOST_NODES:
                raise ValueError(f"its aliases expand to more than {MOST_NODES} values")
            document = loader.construct_document(node)
            if isinstance(document, dict) and "kind" in document:
                yield document
    finally:
        loader.dispose()


def _size(node: Any, known: dict[int, int]) -> int:
    """Count the values below a node with aliases expanded, each node once. Raises ValueError on a cycle."""
    if id(node) not in known:
        known[id(node)] = MOST_NODES + 1  # meeting it again below itself means a cycle
        children = node.value if isinstance(node.value, list) else []
        flat = [part for child in children for part in (child if isinstance(child, tuple) else (child,))]
        known[id(node)] = 1 + sum(_size(part, known) for part in flat)
    return known[id(node)]


def _pods(document: dict[str, Any], depth: int = 0) -> Iterator[Pod]:
    kind = str(document["kind"])
    if kind.endswith("List") and depth < DEEPEST:
        for item in mappings(document.get("items")):
            if "kind" in item:
                yield from _pods(item, depth + 1)
        return
    name = str(mapping(document.get("metadata")).get("name", "unnamed"))
    if kind == "Pod":
        yield _pod(kind, name, "", document, {})
        return
    paths = TEMPLATES.get(kind, ())
    templates = [
        _pod(kind, name, role, template, parent)
        for path in paths
        for role, template, parent in _reach(document, path.split("."))
    ]
    if paths and not templates:
        raise _MalformedError(f"{kind}/{name} without a pod template at {' or '.join(paths)}")
    peers = sum(
        {id(pod.parent): pod.count for pod in templates}.values()
    )  # leader and workers share one count
    outer = mapping(mapping(document.get("metadata")).get("annotations"))
    yield from (replace(pod, peers=peers, annotations={**outer, **pod.annotations}) for pod in templates)


def _reach(
    value: Any, steps: list[str], role: str = "", parent: dict[str, Any] | None = None
) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield role, template and parent mapping at the end of a path."""
    if not steps:
        yield role, value, parent or {}
        return
    first, *rest = steps
    if first != "*":
        if isinstance(value, dict) and first in value:
            yield from _reach(value[first], rest, role or ROLES.get(first, ""), value)
        return
    members = value.items() if isinstance(value, dict) else [(m.get("name", ""), m) for m in mappings(value)]
    for name, member in members:
        yield from _reach(member, rest, str(name), mapping(member))


def _pod(kind: str, name: str, role: str, template: Any, parent: dict[str, Any]) -> Pod:
    spec = mapping(template).get("spec")
    title = f"{kind}/{name}{' ' + role if role else ''}"
    if not isinstance(spec, dict):
        raise _MalformedError(f"{title} whose pod spec is missing or not a mapping")
    containers = spec.get("containers")
    if not containers or mappings(containers) != containers:
        raise _MalformedError(f"{title} whose pod does not list containers")
    metadata = mapping(template.get("metadata"))
    counts = [n for n in map(parent.get, COUNTS) if isinstance(n, int) and not isinstance(n, bool)]
    annotations, labels = mapping(metadata.get("annotations")), mapping(metadata.get("labels"))
    return Pod(kind, name, spec, role, annotations, labels, parent, max(counts, default=1))
