"""How often the diagnosis names the true cause, and how far its predicted gains are from what came true.

On the suite in tests/faults, whose recordings lie in tests/data/faults.
"""

from __future__ import annotations

import json


def bench() -> str:
    """Examine every recording of the suite, write its figures and their picture, return the tables."""
    from tests.faults.examined import KEPT, examined
    from tests.faults.kept import archives
    from tests.faults.scatter import PICTURE, picture
    from tests.faults.score import RESULTS, score
    from tests.faults.tables import tables

    if not archives(KEPT):
        return f"No recordings in {KEPT}: see tests/faults/record.py."
    result = score(examined())
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    PICTURE.write_text(picture(result["gains"]))
    return tables(result)
