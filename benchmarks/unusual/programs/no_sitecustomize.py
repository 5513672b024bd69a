"""Imports a sitecustomize that does not exist."""

from state import report

import fathom

try:
    import sitecustomize
except ImportError as error:
    print(error)
fathom.step()
fathom.step()
report()
