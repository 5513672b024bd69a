"""The checks of the machine that a program ran on, noted once it has ended."""

from __future__ import annotations

import json
from pathlib import Path

from fathom.atomic import atomic_write
from fathom.recorder.redact import redact_text

PATIENCE = 2.0  # seconds that the user waits for one command after the program's end


def note_checks(raw: Path) -> None:
    """Add them to the inventory in `launch.json`. A recording goes without where that is not possible.

    Afterwards, because counters of throttling and killed processes then cover the run, and reading them
    delays no program. Records that stay raw have none: the checks need libraries that such a target lacks.
    """
    from fathom.machine.checks import examine, stored, this_host

    path = raw / "launch.json"
    try:
        launch = json.loads(path.read_bytes())
        results = stored(examine(this_host(PATIENCE)))
        launch["machine"]["checks"] = {
            name: {key: redact_text(text) for key, text in result.items()} for name, result in results.items()
        }
        with atomic_write(path) as part:
            Path(part).write_text(json.dumps(launch, indent=1))
    except Exception:  # whatever a host is like, its recording matters more
        return
