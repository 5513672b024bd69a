"""Where and how a manifest's pods run: nodes, network, restarts, priority."""

from __future__ import annotations

import re
from typing import Any

from fathom.machine.checks import figures, resources
from fathom.machine.checks.host import Host
from fathom.machine.checks.manifest import TRAINING, Pod, mapping, mappings
from fathom.machine.checks.model import Check, Observation, judged, passed, unfit
from fathom.machine.checks.readers.pods import each_pod
from fathom.machine.checks.registry import Answer, reader

TOPOLOGY = re.compile(
    r"kueue\.x-k8s\.io/podset-.*topology|.*exclusive-topology|.*subdomain.*topology.*", re.I
)
QUEUE = re.compile(r"kueue\.x-k8s\.io/(queue-name|priority-class)|.*/priority-?class.*")
NETWORKS = ("k8s.v1.cni.cncf.io/networks", "networking.gke.io/interfaces")
PATIENT = 60  # seconds


def _distributed(pod: Pod) -> bool:
    return pod.peers > 1 and resources.pod_wants_gpu(pod)


@reader("kubernetes.topology")
def topology(host: Host, check: Check) -> Answer:
    def look(pod: Pod) -> Observation:
        if not _distributed(pod):
            return unfit("no multi-pod GPU work")
        hints = [name for name in ({**pod.labels, **pod.annotations}) if TOPOLOGY.fullmatch(str(name))]
        if mapping(pod.spec.get("affinity")).get("podAffinity"):
            hints.append("podAffinity")
        if pod.spec.get("topologySpreadConstraints"):
            hints.append("topologySpreadConstraints")
        return judged(bool(hints), f"{', '.join(map(str, hints)) or 'no hint'} for {pod.peers} pods")

    return each_pod(host, look)


@reader("kubernetes.host_network")
def host_network(host: Host, check: Check) -> Answer:
    def look(pod: Pod) -> Observation:
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

    return each_pod(host, look)


@reader("kubernetes.restart_policy")
def restart_policy(host: Host, check: Check) -> Answer:
    def look(pod: Pod) -> Observation:
        if not resources.pod_wants_gpu(pod) or (pod.kind != "Pod" and pod.kind not in TRAINING):
            return unfit("not a training pod")
        named = pod.spec.get("restartPolicy") or pod.parent.get("restartPolicy")
        policy = str(named or ("Always" if pod.kind == "Pod" else "left to the job's controller"))
        return judged(policy != "Always", f"restart policy: {policy}")

    return each_pod(host, look)


@reader("kubernetes.gpu_model")
def gpu_model(host: Host, check: Check) -> Answer:
    def look(pod: Pod) -> Observation:
        if not resources.pod_wants_gpu(pod):
            return unfit("requests no GPU")
        keys = [key for key in _node_keys(pod.spec) if figures.MODEL.fullmatch(key)]
        words = f"nodes chosen by {', '.join(keys)}" if keys else "any node with a GPU"
        return judged(bool(keys), words, product=figures.product(pod, host.pods or ()))

    return each_pod(host, look)


def _node_keys(spec: dict[str, Any]) -> list[str]:
    """Return the labels that the pod requires of its node."""
    keys = [str(key) for key in mapping(spec.get("nodeSelector"))]
    wish = mapping(mapping(spec.get("affinity")).get("nodeAffinity"))
    terms = mapping(wish.get("requiredDuringSchedulingIgnoredDuringExecution")).get("nodeSelectorTerms")
    for term in mappings(terms):
        keys += [str(e.get("key", "")) for e in mappings(term.get("matchExpressions"))]
    return keys


@reader("kubernetes.priority")
def priority(host: Host, check: Check) -> Answer:
    def look(pod: Pod) -> Observation:
        if not resources.pod_wants_gpu(pod):
            return unfit("requests no GPU")
        named = pod.spec.get("priorityClassName")
        if named:
            return passed(f"priority class {named}")
        queue = [str(n) for n in ({**pod.labels, **pod.annotations}) if QUEUE.fullmatch(str(n))]
        return judged(bool(queue), ", ".join(queue) or "no priority class")

    return each_pod(host, look)


@reader("kubernetes.grace_period")
def grace_period(host: Host, check: Check) -> Answer:
    def look(pod: Pod) -> Observation:
        if not resources.pod_wants_gpu(pod) or pod.kind not in (*TRAINING, "Pod"):
            return unfit("not a training pod")
        seconds = resources.quantity(pod.spec.get("terminationGracePeriodSeconds", 30)) or 0
        return judged(seconds >= PATIENT, f"{seconds:.0f} s between SIGTERM and SIGKILL")

    return each_pod(host, look)
