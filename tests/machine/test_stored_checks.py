"""Checks as a sounding keeps them."""

from __future__ import annotations

import json

from fathom.machine.checks import examine, recalled, stored, this_host


def test_stored_checks_come_back_with_status_and_observation():
    results = examine(this_host())
    back = {result.id: result for result in recalled({"checks": json.loads(json.dumps(stored(results)))})}
    assert {result.id for result in results} == back.keys()
    for result in results:
        same = back[result.id]
        assert (same.status, same.observed, same.reason) == (result.status, result.observed, result.reason)
        assert same.weight == result.weight


def test_missing_and_malformed_entries_are_skipped():
    damaged = {"kernel.gone": {"status": "pass"}, "kernel.stack": {"status": "fine"}, "kernel.smt": "pass"}
    assert recalled({"checks": damaged}) == recalled({}) == recalled({"checks": None}) == []
