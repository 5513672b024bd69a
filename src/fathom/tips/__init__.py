"""The craft's checklist as data, a file an area, and how this machine and program score on it."""

from fathom.tips.catalogue import AREAS, CONDITIONS, PLANNED, By, Tip, tips
from fathom.tips.scoring import (
    STATUSES,
    Evidence,
    Loss,
    Score,
    Scores,
    Status,
    chosen,
    of_machine,
    of_sounding,
    score,
)
