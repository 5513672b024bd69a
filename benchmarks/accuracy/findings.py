"""How often the diagnosis names the true cause, and how far its predicted gains are from what came true.

On the suite in faults, whose recordings lie in faults/recordings.
"""

from __future__ import annotations

import json


def bench() -> str:
    """Examine every recording of the suite, write its figures and their picture, return the tables."""
    from faults.examined import KEPT, examined
    from faults.kept import archives
    from faults.scatter import PICTURE, picture
    from faults.score import RESULTS, score
    from faults.tables import tables

    if not archives(KEPT):
        return f"No recordings in {KEPT}: see faults/record.py."
    result = score(examined())
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    PICTURE.write_text(picture(result["gains"]))
    return tables(result)
