"""Kinds of findings as data, one file per group: the cause, its signs in a recording, and the remedy.

`shows` describes the signs in terms of tables of a sounding, entries of the ledger and figures derived from
them; `remedy` is code or a setting that can be tried without changes.
"""

from fathom.diagnosis.kinds.catalogue import (
    Kind,
    declared,
    described,
    kind_called,
    kinds,
    kinds_of_steps,
    resembling,
)
