"""One colour for each entry of the ledger, in every figure and table; readable on white and on black."""

from __future__ import annotations

from fathom.analysis.entries import Entry, cause_of

IDLE = "#d9534f"
_COLOURS: dict[str, str] = {
    Entry.COMPUTE: "#2a9d74",
    Entry.OPS: "#2a9d74",
    Entry.COMMUNICATION: "#8e63ce",
    Entry.MOVING_BYTES: "#8e63ce",
    Entry.WAITING_FOR_PEERS: "#c08ae6",
    Entry.HOST_WAITS_FOR_PEERS: "#c08ae6",
    Entry.COPY: "#c9962b",
    Entry.INPUT: "#e8743b",
    Entry.DISPATCHING: "#d6568c",
    Entry.PYTHON: "#b5467a",
    Entry.SYNCHRONISATION: "#c2554b",
    Entry.BLOCKED: "#a8574f",
    Entry.LAUNCH_LATENCY: "#e08a83",
    Entry.FIRST_USE: "#7d6b5d",
    Entry.UNRECORDED: "#9a7b78",
    Entry.DEVICE_GAP: "#d9534f",
    Entry.OWN_HOOKS: "#8a8f98",
    Entry.UNATTRIBUTED: "#5b8fd6",
    Entry.UNEXPLAINED: "#9a7b78",
}
PEAK, CEILING = "#1f7a8c", "#4fa3b5"
FINDING, HEADROOM, UNKNOWN = "#d97a1f", "#d8b15a", "#8a8f98"
STAGES = {
    "fetch": "#4f86c6",
    "read": "#2f5f98",
    "decode": "#d97a1f",
    "transform": "#8e63ce",
    "collate": "#2a9d74",
    "pin": "#c9962b",
    "copy": "#a8574f",
}
SERIES = ("#2a78c2", "#d97a1f", "#2a9d74", "#8e63ce", "#c2554b", "#7a8b2f", "#b5467a", "#4fa3b5")


def of_entry(entry: str) -> str:
    """Return the colour of a ledger's entry or group; causes of idle time that have none share one."""
    return _COLOURS.get(entry, IDLE if cause_of(entry) or entry == "idle" else UNKNOWN)


def of_owner(owner: str, part: str) -> str:
    """Return the colour of a part of the account by its owner."""
    kind, _, name = owner.partition(" ")
    named = {"peak": PEAK, "ceiling": CEILING, "finding": FINDING, "lead": HEADROOM, "kernels": HEADROOM}
    if kind in named:
        return named[kind]
    exposed = next((entry for entry in _COLOURS if part.startswith(f"exposed {entry}")), None)
    if exposed is not None:
        return _COLOURS[exposed]
    if kind == "cause":
        return _COLOURS.get(f"idle: {name}", of_entry(name))
    return IDLE if part.startswith("idle") else UNKNOWN
