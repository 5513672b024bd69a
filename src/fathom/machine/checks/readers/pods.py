"""The requests of a manifest's pods, and their placement: nodes, network, restarts, priority."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from fathom.machine.checks import resources
from fathom.machine.checks.host import Host
from fathom.machine.checks.manifest import TRAINING, Container, Pod, mapping, mappings
from fathom.machine.checks.model import Check, Observation, failed, judged, passed, unfit
from fathom.machine.checks.readers.variables import refused
from fathom.machine.checks.registry import Answer, reader, subject_reader
from fathom.machine.checks.tables import checks
from fathom.machine.files import NotOfferedError

OfPod = Callable[[Pod], Observation]
OfContainer = Callable[[Pod, Container], Observation]
TOPOLOGY = re.compile(
    r"kueue\.x-k8s\.io/podset-.*topology|.*exclusive-topology|.*subdomain.*topology.*", re.I
)
QUEUE = re.compile(r"kueue\.x-k8s\.io/(queue-name|priority-class)|.*/priority-?class.*")
NETWORKS = ("k8s.v1.cni.cncf.io/networks", "networking.gke.io/interfaces")
PATIENT = 60  # seconds


def each_pod(host: Host, look: OfPod) -> Iterator[Observation]:
    """Apply `look` to each pod, named by its object's kind and name."""
    for pod in _given(host):
        yield msgspec.structs.replace(look(pod), subject=pod.title)


def each(host: Host, look: OfContainer) -> Iterator[Observation]:
    """Apply `look` to each container, named by its object and itself."""
    for pod in _given(host):
        for name, container in pod.containers:
            title = f"{pod.title}, container {name}"
            yield msgspec.structs.replace(look(pod, container), subject=title)


def _given(host: Host) -> Sequence[Pod]:
    if host.pods is None:
        raise NotOfferedError("no manifest was given")
    return host.pods


pod_reader = subject_reader(each_pod)
container_reader = subject_reader(each)


@container_reader("kubernetes.guaranteed")
def guaranteed(pod: Pod, container: Container) -> Observation:
    asked, most = resources.requests(pod, container), resources.limits(pod, container)
    missing = [name for name in ("cpu", "memory") if resources.quantity(most.get(name)) is None]
    own = {"cpus": resources.cpus(pod, container), "memory": resources.memory(pod, container)}
    if missing:
        return failed(f"no {' or '.join(missing)} limit", **own)
    words = ", ".join(f"{name} {asked[name]} of {most[name]}" for name in ("cpu", "memory"))
    pairs = [(resources.quantity(asked[name]), resources.quantity(most[name])) for name in ("cpu", "memory")]
    return judged(all(a == b for a, b in pairs), f"requests {words}", **own)


@container_reader("kubernetes.whole_cpus")
def whole_cpus(pod: Pod, container: Container) -> Observation:
    cpu = resources.requests(pod, container).get("cpu")
    count = resources.quantity(cpu)
    if count is None:
        return unfit("requests no CPUs")
    return judged(count == int(count), f"requests {cpu} CPUs", cpus=resources.cpus(pod, container))


@container_reader("kubernetes.huge_pages")
def huge_pages(pod: Pod, container: Container) -> Observation:
    asked, most = resources.requests(pod, container), resources.limits(pod, container)
    pages = {name: amount for name, amount in asked.items() if str(name).startswith("hugepages-")}
    if not pages:
        return unfit("requests no huge pages")
    words = ", ".join(f"{name} {amount}" for name, amount in pages.items())
    if any(resources.quantity(most.get(n)) != resources.quantity(a) for n, a in pages.items()):
        return failed(f"{words}, but the limit differs", **resources.huge(pages))
    volumes = pod.spec.get("volumes") if isinstance(pod.spec.get("volumes"), list) else []
    media = [str(mapping(mapping(v).get("emptyDir")).get("medium", "")) for v in volumes or []]
    good = any(m.startswith("HugePages") for m in media)
    return judged(good, f"{words}, volumes of medium {media or 'none'}", **resources.huge(pages))


@reader("kubernetes.gpu")
def gpu(host: Host, check: Check) -> Answer:
    def look(pod: Pod, container: Container) -> Observation:
        asked = resources.matching(resources.requests(pod, container), resources.GPU)
        most = resources.matching(resources.limits(pod, container), resources.GPU)
        if not resources.wants_gpu(pod, container):
            if pod.kind in TRAINING and not any(map(resources.pod_wants_gpu, _given(host))):
                return failed("a training job that requests no GPU", gpus="nvidia.com/gpu: <GPUS>")
            return unfit("requests no GPU")
        words = ", ".join(f"{name} {amount}" for name, amount in asked.items()) or "by a claim"
        words = words if asked == most else f"requests {words}, but the limit differs"
        return judged(asked == most, words, gpus=resources.listed(asked, ""))

    return each(host, look)


@container_reader("kubernetes.shm")
def shm(pod: Pod, container: Container) -> Observation:
    if not resources.wants_gpu(pod, container):
        return unfit("requests no GPU")
    if pod.spec.get("hostIPC") is True:
        return passed("the host's shared memory")
    volume = resources.mounted(pod, container, "/dev/shm")
    size = resources.half(pod, container)
    if volume is None:
        return failed("nothing is mounted at /dev/shm: 64 MiB", size=size)
    medium = mapping(volume.get("emptyDir")).get("medium")
    return judged(medium == "Memory", f"/dev/shm is a volume of medium {medium or 'disk'}", size=size)


@container_reader("kubernetes.shm_size")
def shm_size(pod: Pod, container: Container) -> Observation:
    volume = resources.mounted(pod, container, "/dev/shm")
    if volume is None:
        return unfit("nothing is mounted at /dev/shm")
    text = mapping(volume.get("emptyDir")).get("sizeLimit")
    size = resources.quantity(text)
    memory = resources.quantity(resources.limits(pod, container).get("memory"))
    fill = {"name": str(volume.get("name")), "size": resources.half(pod, container)}
    if size is None:
        return failed("/dev/shm has no size limit", **fill)
    return judged(memory is None or size < memory, f"/dev/shm holds {text}", **fill)


@reader("kubernetes.rdma")
def rdma(host: Host, check: Check) -> Answer:
    def look(pod: Pod, container: Container) -> Observation:
        if pod.peers < 2 or not resources.wants_gpu(pod, container):
            return unfit("no multi-pod GPU work")
        asked = resources.matching(resources.requests(pod, container), resources.RDMA)
        words = ", ".join(f"{n} {a}" for n, a in asked.items()) or "requests no RDMA device"
        return judged(bool(asked), words, device=resources.rdma(host.pods or ()))

    return each(host, look)


@container_reader("kubernetes.ipc_lock")
def ipc_lock(pod: Pod, container: Container) -> Observation:
    if not resources.wants_rdma(pod, container):
        return unfit("requests no RDMA device")
    added = resources.capabilities(container)
    return judged(bool(added & {"IPC_LOCK", "ALL"}), f"adds {', '.join(sorted(added)) or 'no capability'}")


@container_reader("kubernetes.image")
def image(pod: Pod, container: Container) -> Observation:
    name = str(container.get("image") or "")
    tag = name.rpartition("/")[2].partition(":")[2]
    good = "@sha256:" in name or tag not in ("", "latest")
    bare = name.removesuffix(":latest") or "<IMAGE>"
    return judged(good, f"image {name or 'not named'}", image=bare)


@container_reader("kubernetes.environment")
def environment(pod: Pod, container: Container) -> Observation:
    rows = [row for row in checks() if row.reader == "variable"]
    settings = resources.environment(container)
    left = {name: value for row in rows for name, value in refused(row, settings).items()}
    words = ", ".join(f"{n}={v}" for n, v in left.items()) or "no debugging variables"
    return judged(not left, words, names=", ".join(left))


@container_reader("kubernetes.omp_threads")
def omp_threads(pod: Pod, container: Container) -> Observation:
    cpu = resources.limits(pod, container).get("cpu")
    if resources.quantity(cpu) is None:
        return unfit("has no CPU limit")
    threads = resources.environment(container).get("OMP_NUM_THREADS")
    words = f"a limit of {cpu} CPUs, OMP_NUM_THREADS {threads or 'not set'}"
    return judged(threads is not None, words, **resources.threads(pod, container))


def _distributed(pod: Pod) -> bool:
    return pod.peers > 1 and resources.pod_wants_gpu(pod)


@pod_reader("kubernetes.topology")
def topology(pod: Pod) -> Observation:
    if not _distributed(pod):
        return unfit("no multi-pod GPU work")
    hints = [name for name in ({**pod.labels, **pod.annotations}) if TOPOLOGY.fullmatch(str(name))]
    if mapping(pod.spec.get("affinity")).get("podAffinity"):
        hints.append("podAffinity")
    if pod.spec.get("topologySpreadConstraints"):
        hints.append("topologySpreadConstraints")
    return judged(bool(hints), f"{', '.join(map(str, hints)) or 'no hint'} for {pod.peers} pods")


@pod_reader("kubernetes.host_network")
def host_network(pod: Pod) -> Observation:
    if not _distributed(pod):
        return unfit("no multi-pod GPU work")
    if pod.spec.get("hostNetwork") is True:
        policy = str(pod.spec.get("dnsPolicy", "ClusterFirst"))
        return judged(policy == "ClusterFirstWithHostNet", f"the host's network, DNS policy {policy}")
    second = [name for name in NETWORKS if name in pod.annotations]
    rdma = any(resources.wants_rdma(pod, container) for _, container in pod.containers)
    words = (
        f"the pod's own network, {', '.join(second)}"
        if second
        else "an RDMA device"
        if rdma
        else "pod network"
    )
    return judged(bool(second) or rdma, words)


@pod_reader("kubernetes.restart_policy")
def restart_policy(pod: Pod) -> Observation:
    if not resources.pod_wants_gpu(pod) or (pod.kind != "Pod" and pod.kind not in TRAINING):
        return unfit("not a training pod")
    named = pod.spec.get("restartPolicy") or pod.parent.get("restartPolicy")
    policy = str(named or ("Always" if pod.kind == "Pod" else "left to the job's controller"))
    return judged(policy != "Always", f"restart policy: {policy}")


@reader("kubernetes.gpu_model")
def gpu_model(host: Host, check: Check) -> Answer:
    def look(pod: Pod) -> Observation:
        if not resources.pod_wants_gpu(pod):
            return unfit("requests no GPU")
        keys = [key for key in _node_keys(pod.spec) if resources.MODEL.fullmatch(key)]
        words = f"nodes chosen by {', '.join(keys)}" if keys else "any node with a GPU"
        return judged(bool(keys), words, product=resources.product(pod, host.pods or ()))

    return each_pod(host, look)


def _node_keys(spec: dict[str, Any]) -> list[str]:
    """Return the labels that the pod requires of its node."""
    keys = [str(key) for key in mapping(spec.get("nodeSelector"))]
    wish = mapping(mapping(spec.get("affinity")).get("nodeAffinity"))
    terms = mapping(wish.get("requiredDuringSchedulingIgnoredDuringExecution")).get("nodeSelectorTerms")
    for term in mappings(terms):
        keys += [str(e.get("key", "")) for e in mappings(term.get("matchExpressions"))]
    return keys


@pod_reader("kubernetes.priority")
def priority(pod: Pod) -> Observation:
    if not resources.pod_wants_gpu(pod):
        return unfit("requests no GPU")
    named = pod.spec.get("priorityClassName")
    if named:
        return passed(f"priority class {named}")
    queue = [str(n) for n in ({**pod.labels, **pod.annotations}) if QUEUE.fullmatch(str(n))]
    return judged(bool(queue), ", ".join(queue) or "no priority class")


@pod_reader("kubernetes.grace_period")
def grace_period(pod: Pod) -> Observation:
    if not resources.pod_wants_gpu(pod) or pod.kind not in (*TRAINING, "Pod"):
        return unfit("not a training pod")
    seconds = resources.quantity(pod.spec.get("terminationGracePeriodSeconds", 30)) or 0
    return judged(seconds >= PATIENT, f"{seconds:.0f} s between SIGTERM and SIGKILL")
