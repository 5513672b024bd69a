"""The readers; importing this package registers them."""

from fathom.machine.checks.readers import (
    cgroup,
    clocks,
    fabric,
    health,
    interrupts,
    memory,
    placement,
    pod_placement,
    pods,
    processor,
    scheduling,
    settings,
    sharing,
    variables,
    versions,
)

__all__ = [
    "cgroup",
    "clocks",
    "fabric",
    "health",
    "interrupts",
    "memory",
    "placement",
    "pod_placement",
    "pods",
    "processor",
    "scheduling",
    "settings",
    "sharing",
    "variables",
    "versions",
]
