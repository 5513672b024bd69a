"""Examine a sounding: derive findings, a verdict and an account from its analyses."""

from typing import TYPE_CHECKING

from fathom.diagnosis.examine import examine
from fathom.diagnosis.kinds import Kind, described, kind_called, kinds, kinds_of_steps
from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.diagnosis.loading import loader_gains
    from fathom.diagnosis.naming import FormFindings, PairFinding, findings_in, form_findings, pair_findings
    from fathom.diagnosis.serving import diagnose_load

# A report does not compare recordings of pairs.
_, __getattr__ = exports(__name__)
