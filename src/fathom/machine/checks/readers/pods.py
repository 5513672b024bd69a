"""The requests of a manifest's pods: resources, shared memory, capabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from fathom.machine.checks import figures, resources
from fathom.machine.checks.host import Host
from fathom.machine.checks.manifest import TRAINING, Container, Pod, mapping
from fathom.machine.checks.model import Check, Observation, failed, judged, passed, unfit
from fathom.machine.checks.readers.variables import refused
from fathom.machine.checks.registry import Answer, reader
from fathom.machine.checks.tables import checks
from fathom.machine.files import NotOfferedError


def each_pod(host: Host, look: Callable[[Pod], Observation]) -> Iterator[Observation]:
    """Apply `look` to each pod, named by its object's kind and name."""
    for pod in _given(host):
        yield msgspec.structs.replace(look(pod), subject=pod.title)


def each(host: Host, look: Callable[[Pod, Container], Observation]) -> Iterator[Observation]:
    """Apply `look` to each container, named by its object and itself."""
    for pod in _given(host):
        for name, container in pod.containers:
            title = f"{pod.title}, container {name}"
            yield msgspec.structs.replace(look(pod, container), subject=title)


def _given(host: Host) -> Sequence[Pod]:
    if host.pods is None:
        raise NotOfferedError("no manifest was given")
    return host.pods


@reader("kubernetes.guaranteed")
def guaranteed(host: Host, check: Check) -> Answer:
    def look(pod: Pod, container: Container) -> Observation:
        asked, most = resources.requests(pod, container), resources.limits(pod, container)
        missing = [name for name in ("cpu", "memory") if resources.quantity(most.get(name)) is None]
        own = {"cpus": figures.cpus(pod, container), "memory": figures.memory(pod, container)}
        if missing:
            return failed(f"no {' or '.join(missing)} limit", **own)
        words = ", ".join(f"{name} {asked[name]} of {most[name]}" for name in ("cpu", "memory"))
        pairs = [
            (resources.quantity(asked[name]), resources.quantity(most[name])) for name in ("cpu", "memory")
        ]
        return judged(all(a == b for a, b in pairs), f"requests {words}", **own)

    return each(host, look)


@reader("kubernetes.whole_cpus")
def whole_cpus(host: Host, check: Check) -> Answer:
    def look(pod: Pod, container: Container) -> Observation:
        cpu = resources.requests(pod, container).get("cpu")
        count = resources.quantity(cpu)
        if count is None:
            return unfit("requests no CPUs")
        return judged(count == int(count), f"requests {cpu} CPUs", cpus=figures.cpus(pod, container))

    return each(host, look)


@reader("kubernetes.huge_pages")
def huge_pages(host: Host, check: Check) -> Answer:
    def look(pod: Pod, container: Container) -> Observation:
        asked, most = resources.requests(pod, container), resources.limits(pod, container)
        pages = {name: amount for name, amount in asked.items() if str(name).startswith("hugepages-")}
        if not pages:
            return unfit("requests no huge pages")
        words = ", ".join(f"{name} {amount}" for name, amount in pages.items())
        if any(resources.quantity(most.get(n)) != resources.quantity(a) for n, a in pages.items()):
            return failed(f"{words}, but the limit differs", **figures.huge(pages))
        volumes = pod.spec.get("volumes") if isinstance(pod.spec.get("volumes"), list) else []
        media = [str(mapping(mapping(v).get("emptyDir")).get("medium", "")) for v in volumes or []]
        good = any(m.startswith("HugePages") for m in media)
        return judged(good, f"{words}, volumes of medium {media or 'none'}", **figures.huge(pages))

    return each(host, look)


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
        return judged(asked == most, words, gpus=figures.listed(asked, ""))

    return each(host, look)


@reader("kubernetes.shm")
def shm(host: Host, check: Check) -> Answer:
    def look(pod: Pod, container: Container) -> Observation:
        if not resources.wants_gpu(pod, container):
            return unfit("requests no GPU")
        if pod.spec.get("hostIPC") is True:
            return passed("the host's shared memory")
        volume = resources.mounted(pod, container, "/dev/shm")
        size = figures.half(pod, container)
        if volume is None:
            return failed("nothing is mounted at /dev/shm: 64 MiB", size=size)
        medium = mapping(volume.get("emptyDir")).get("medium")
        return judged(medium == "Memory", f"/dev/shm is a volume of medium {medium or 'disk'}", size=size)

    return each(host, look)


@reader("kubernetes.shm_size")
def shm_size(host: Host, check: Check) -> Answer:
    def look(pod: Pod, container: Container) -> Observation:
        volume = resources.mounted(pod, container, "/dev/shm")
        if volume is None:
            return unfit("nothing is mounted at /dev/shm")
        text = mapping(volume.get("emptyDir")).get("sizeLimit")
        size = resources.quantity(text)
        memory = resources.quantity(resources.limits(pod, container).get("memory"))
        fill = {"name": str(volume.get("name")), "size": figures.half(pod, container)}
        if size is None:
            return failed("/dev/shm has no size limit", **fill)
        return judged(memory is None or size < memory, f"/dev/shm holds {text}", **fill)

    return each(host, look)


@reader("kubernetes.rdma")
def rdma(host: Host, check: Check) -> Answer:
    def look(pod: Pod, container: Container) -> Observation:
        if pod.peers < 2 or not resources.wants_gpu(pod, container):
            return unfit("no multi-pod GPU work")
        asked = resources.matching(resources.requests(pod, container), resources.RDMA)
        words = ", ".join(f"{n} {a}" for n, a in asked.items()) or "requests no RDMA device"
        return judged(bool(asked), words, device=figures.rdma(host.pods or ()))

    return each(host, look)


@reader("kubernetes.ipc_lock")
def ipc_lock(host: Host, check: Check) -> Answer:
    def look(pod: Pod, container: Container) -> Observation:
        if not resources.wants_rdma(pod, container):
            return unfit("requests no RDMA device")
        added = resources.capabilities(container)
        return judged(
            bool(added & {"IPC_LOCK", "ALL"}), f"adds {', '.join(sorted(added)) or 'no capability'}"
        )

    return each(host, look)


@reader("kubernetes.image")
def image(host: Host, check: Check) -> Answer:
    def look(pod: Pod, container: Container) -> Observation:
        name = str(container.get("image") or "")
        tag = name.rpartition("/")[2].partition(":")[2]
        good = "@sha256:" in name or tag not in ("", "latest")
        bare = name.removesuffix(":latest") or "<IMAGE>"
        return judged(good, f"image {name or 'not named'}", image=bare)

    return each(host, look)


@reader("kubernetes.environment")
def environment(host: Host, check: Check) -> Answer:
    rows = [row for row in checks() if row.reader == "variable"]

    def look(pod: Pod, container: Container) -> Observation:
        settings = resources.environment(container)
        left = {name: value for row in rows for name, value in refused(row, settings).items()}
        words = ", ".join(f"{n}={v}" for n, v in left.items()) or "no debugging variables"
        return judged(not left, words, names=", ".join(left))

    return each(host, look)


@reader("kubernetes.omp_threads")
def omp_threads(host: Host, check: Check) -> Answer:
    def look(pod: Pod, container: Container) -> Observation:
        cpu = resources.limits(pod, container).get("cpu")
        if resources.quantity(cpu) is None:
            return unfit("has no CPU limit")
        threads = resources.environment(container).get("OMP_NUM_THREADS")
        words = f"a limit of {cpu} CPUs, OMP_NUM_THREADS {threads or 'not set'}"
        return judged(threads is not None, words, **figures.threads(pod, container))

    return each(host, look)
