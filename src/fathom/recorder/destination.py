"""Where a recording goes: a sounding, or one part among those of a job's ranks, on a disk or in a store."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fathom.errors import BadInputError, FathomError
from fathom.probe import Task, task
from fathom.recorder.command import default_name, free_output


@dataclass(frozen=True)
class Destination:
    """The folder that a recording is written to, and what happens to it afterwards.

    `task` is this process's place among the tasks of a job that run Fathom each; None if there is only one.
    `url` is where the finished part is copied to, `schedule` the file that the ranks of this host share.
    """

    folder: Path
    task: Task | None = None
    url: str | None = None
    schedule: Path | None = None

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the program's environment, with the path of the common schedule if there is one."""
        return {**environment, **({"FATHOM_SCHEDULE": str(self.schedule)} if self.schedule else {})}

    def deliver(self, command: list[str], say: Callable[[str], None]) -> None:
        """Copy the part to its URL, and say how to join the parts. Errors keep the local copy."""
        if self.schedule is not None and self.task is not None and not self.task.local_rank:
            for file in self.schedule.parent.glob(f"{self.schedule.name}*"):
                file.unlink(missing_ok=True)
        place = str(self.folder.parent)
        if self.url is not None:
            from fathom.sounding import upload

            try:
                say(f"the recording is {upload(self.folder, self.url)}")
            except FathomError as error:
                say(f"{error} The recording is kept in {self.folder}.")
                return
            shutil.rmtree(self.folder, ignore_errors=True)
            place = self.url
        if self.task is not None and self.task.rank == 0:
            name = f"{default_name(command)}.fathom"
            say(f"join the {self.task.world} parts with `fathom merge {place} -o {name}`")


def choose_destination(
    output: str | Path | None, command: list[str], environment: Mapping[str, str] = os.environ
) -> Destination:
    """Return where to record `command`: `output`, a name after the command, or a part of either in a job.

    A process that a launcher started as one of several records into `part-RANK.fathom` in the folder
    `output`. A part that is restarted gets a name that ends in the number of the attempt.
    """
    here = task(environment)
    here = here if here and here.world > 1 else None
    if output is not None and "://" in str(output):
        folder = _staging(str(output))
        return Destination(folder / _part(here, environment), here, str(output), _schedule(folder, here))
    if here is None:
        return Destination(Path(output) if output else free_output(default_name(command), Path()))
    folder = Path(output or f"{default_name(command)}-{_job(environment)}")
    return Destination(folder / _part(here, environment), here, None, _schedule(folder, here))


def _part(here: Task | None, environment: Mapping[str, str]) -> str:
    attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0") if here else "0"
    restarted = f"-restart-{attempt}" if attempt.isdecimal() and int(attempt) else ""
    return f"part-{here.rank if here else 0}{restarted}.fathom"


def _job(environment: Mapping[str, str]) -> str:
    """Return a name of this job that its tasks on this host share; runs one after another differ."""
    names = [environment.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID")]
    elastic = environment.get("TORCHELASTIC_RUN_ID", "none")
    return ".".join(filter(None, names)) or (elastic if elastic != "none" else str(os.getppid()))


def _schedule(folder: Path, here: Task | None) -> Path | None:
    if here is None or (here.local_world or 1) < 2:
        return None
    return folder.absolute() / f".schedule-{os.uname().nodename}.json"


def _staging(url: str) -> Path:
    """Return a local folder for what is copied to `url`; all tasks of this host share it."""
    digest = hashlib.sha256(url.encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"fathom-{os.getuid()}-{digest}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.getuid() or folder.is_symlink():
        raise BadInputError(f"{folder} belongs to another user; set TMPDIR to a folder of yours.")
    return folder
