"""Render an Examination for people and programs. Only sums and shares are computed here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.report.bisection import print_bisection
    from fathom.report.checks import print_checks
    from fathom.report.comparison import print_sounding_comparison
    from fathom.report.export.exported import Exported
    from fathom.report.export.perfetto import save_perfetto
    from fathom.report.export.spans import save_spans
    from fathom.report.export.tables import save_tables, without_lists
    from fathom.report.findings import none, print_findings, print_kind, print_kinds
    from fathom.report.gate import gate_junit, gate_markdown, print_gate, save_text
    from fathom.report.goodput import print_goodput
    from fathom.report.heading import basis
    from fathom.report.kernel import matching, named, print_kernels, save_samples
    from fathom.report.kernel.dive import dive_content, print_dive
    from fathom.report.lab import print_outcome, print_pair_findings, print_technique, print_techniques
    from fathom.report.leads import print_leads
    from fathom.report.live.lines import live_events, live_line
    from fathom.report.live.metrics import LiveCollector
    from fathom.report.live.page import live_page
    from fathom.report.load import print_load
    from fathom.report.machine import print_ceilings, print_comparison, print_machine
    from fathom.report.notebook import to_html
    from fathom.report.page.comparison import save_comparison
    from fathom.report.page.page import save_figures, save_page
    from fathom.report.page.plan import save_plan
    from fathom.report.page.plan_serving import save_serving_plan
    from fathom.report.page.recording import Recording
    from fathom.report.plan import print_checked, print_plan
    from fathom.report.plan_serving import (
        print_machines,
        print_reliability_plan,
        print_serving_plan,
        print_shapes,
    )
    from fathom.report.serving import print_causes
    from fathom.report.terminal import View, print_report, save_picture
    from fathom.report.tips import print_tips
    from fathom.report.tune import print_knobs, print_ranking, print_tuned
    from fathom.report.verdict import print_verdict
    from fathom.report.what_if import print_prediction

# Screens are imported when they are used, so that `fathom machine` does not import polars.
__all__, __getattr__ = exports(__name__)
