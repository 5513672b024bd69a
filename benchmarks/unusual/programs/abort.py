"""Aborts."""

import os
import resource

import fathom

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for _ in range(70):
    fathom.step()
os.abort()
