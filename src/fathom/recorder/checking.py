"""The checks of the machine that a program ran on, noted once it has ended."""

from __future__ import annotations

import json
from pathlib import Path


def note_checks(raw: Path) -> None:
    """Add them to the inventory in `launch.json`. A recording goes without where that is not possible.

    Afterwards, because counters of throttling and killed processes then cover the run, and reading them
    delays no program. Records that stay raw have none: the checks need libraries that such a target lacks.
    """
    from fathom.machine.checks import examine, stored, this_host

    path = raw / "launch.json"
    part = path.with_suffix(".part")
    try:
        launch = json.loads(path.read_bytes())
        launch["machine"]["checks"] = stored(examine(this_host()))
        part.write_text(json.dumps(launch, indent=1))
        part.replace(path)
    except Exception:  # whatever a host is like, its recording matters more
        part.unlink(missing_ok=True)
