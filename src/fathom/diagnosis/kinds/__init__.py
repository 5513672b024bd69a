"""Kinds of findings as data, a file a group: what each one is, how it shows in a recording, what mends it.

`shows` names tables of a sounding, entries of the ledger, and figures made of them; `remedy` is code or a
setting that can be tried as it stands.
"""

from fathom.diagnosis.kinds.catalogue import Kind, kinds, resembling

__all__ = ["Kind", "kinds", "resembling"]
