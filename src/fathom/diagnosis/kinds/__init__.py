"""Kinds of findings as data, one file per group: the cause, its traces in a recording, the remedy.

`shows` names tables of a sounding, entries of the ledger, and figures made of them; `remedy` is code or a
setting that can be tried without changes.
"""

from fathom.diagnosis.kinds.catalogue import Kind, kinds, resembling

__all__ = ["Kind", "kinds", "resembling"]
