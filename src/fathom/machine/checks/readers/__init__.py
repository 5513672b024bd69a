"""The readers; importing this package registers them."""

from fathom.machine.checks.readers import (
    cgroup,
    clocks,
    containment,
    fabric,
    health,
    interrupts,
    memory,
    placement,
    pod_placement,
    pods,
    processor,
    settings,
    sharing,
    variables,
    versions,
)

__all__ = [
    "cgroup",
    "clocks",
    "containment",
    "fabric",
    "health",
    "interrupts",
    "memory",
    "placement",
    "pod_placement",
    "pods",
    "processor",
    "settings",
    "sharing",
    "variables",
    "versions",
]
