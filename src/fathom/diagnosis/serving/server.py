"""Findings on a load test, from the server's own metrics: their rules are those of recordings."""

from __future__ import annotations

from collections.abc import Sequence

from fathom.analysis import Abstained
from fathom.analysis.serving import Entry
from fathom.diagnosis.serving.bounds import bounded, open_rules
from fathom.diagnosis.serving.facts import FULL
from fathom.diagnosis.serving.rules import FEWEST, rules
from fathom.diagnosis.serving.speculation import explained
from fathom.load import Load, Server, State

FEWEST_STATES = 5  # readings of gauges: fewer say nothing about how often something was so
FEWEST_WAITING = 3  # of them with requests in the queue; shorter queues pass between two readings


def diagnose_load(load: Load, shared: float | None) -> None:
    """Set the findings that the server's metrics give, and those that they leave open.

    `shared` is the share of the prompts' tokens that earlier prompts began with; None: not known.
    """
    server = load.server
    if server is None:
        return
    if server.e2e is None or server.e2e.n < FEWEST:
        why = f"the server's metrics show fewer than {FEWEST} finished requests"
        load.abstained = [Abstained("causes that lengthen requests", why)]
        return
    facts = facts_of_server(server, shared)
    spread = {Entry.QUEUE: server.queue, Entry.PREFILL_PHASE: server.prefill}
    means = {entry.value: of.mean for entry, of in spread.items() if of is not None}
    load.findings = bounded(facts, means, server.e2e.mean)
    if server.preemptions:
        for finding in load.findings:
            finding.evidence["preemptions"] = float(server.preemptions)
    load.abstained = explained(open_rules(facts, "the server's metrics"), server.accepted)


def facts_of_server(server: Server, shared: float | None) -> dict[str, float | None]:
    """Return the facts by name; shares of time are of the mean request. None: the metrics do not say."""
    known: dict[str, float | None] = {name: None for rule in rules() for name in rule.when}
    known |= _of_states(server.states)
    known["block_waste"] = _block_waste(server.block, server.tokens_per_request)
    known["rejected_share"] = 0.0 if server.accepted is None else 1.0 - server.accepted
    if server.hit_rate is not None and shared is not None:
        known["repeated_share"] = shared - server.hit_rate
    if server.e2e is None or not server.e2e.mean:
        return known
    if server.prefill is not None:
        known["prefill_share"] = server.prefill.mean / server.e2e.mean
    if server.queue is not None:
        queue = server.queue.mean / server.e2e.mean
        known |= {"queue_share": queue, "kept_out_share": _kept_out(queue, server.preemptions)}
    return known


def _kept_out(queue: float, preemptions: int | None) -> float | None:
    """Return the share of time without a place in the cache: the queue, to which preemptions add.

    Their time has no metric. None if the queue alone would not reach the rule's threshold and there are some.
    """
    least = min(rule.when["kept_out_share"] for rule in rules() if "kept_out_share" in rule.when)
    return queue if queue >= least or preemptions == 0 else None


def _block_waste(block: int | None, length: float | None) -> float:
    """Return the share of blocks behind the ends of requests of this length: half a block for each.

    It is 0 if not known: a full cache is then reported as too small. A request that is shorter than a block
    leaves the rest of it.
    """
    if not block or not length:
        return 0.0
    return 1.0 - length / block if length < block else block / (2 * length + block)


def _of_states(states: Sequence[State]) -> dict[str, float | None]:
    """Return the facts from gauges; a share counts readings, of which there must be some."""
    running = [state.running for state in states if state.running is not None]
    cache = [state.cache for state in states if state.cache is not None]
    waiting = [state for state in states if state.waiting]
    counted = {
        "busy": _share([count > 0 for count in running], 1),
        "at_limit_share": _share([state.running == max(running) for state in waiting]) if running else None,
    }
    if cache:
        counted["kv_free"] = 1.0 - max(cache)
        counted["kv_full_share"] = _share([(state.cache or 0.0) >= FULL for state in waiting])
    return counted if len(states) >= FEWEST_STATES else {}


def _share(flags: Sequence[bool], fewest: int = FEWEST_WAITING) -> float | None:
    """Return the share of readings; None with too few of them."""
    return sum(flags) / len(flags) if len(flags) >= fewest else None
