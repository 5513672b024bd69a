"""Run the rules over the signals of a sounding."""

from fathom.diagnosis.engine.findings import findings
from fathom.diagnosis.engine.leads import leads
