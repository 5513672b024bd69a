"""Everything that checks may read, in one object that tests can fake."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

from fathom.machine.checks.manifest import Pod
from fathom.machine.files import UnreadableError, natural, parse_list
from fathom.machine.nvml import NvmlMissingError, load

LARGEST = 1 << 22  # limit for a file or a command's output, far above anything that checks read
PIECE = 1 << 14
PATIENCE = 10  # seconds for a command


Runner = Callable[[Sequence[str]], str]
UNLIMITED = float("inf")


@dataclass(frozen=True)
class Host:
    """A machine as seen by a process running on it.

    `root` stands in for `/`; `nvml` is an open `pynvml`, or None with `why_no_gpu`. `run` returns a command's
    standard output and raises UnreadableError. `limits` are soft limits keyed by the lower-case names of
    `resource.RLIMIT_*` (`nofile`), infinite if unlimited; `affinity` is the CPUs that this process
    may use, `distributions` the versions of installed Python packages by normalised name, and `pods`
    those of the manifests to check, None if none were given.
    """

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=dict)
    nvml: Any = None
    why_no_gpu: str = "no NVIDIA driver"
    run: Runner = field(default=lambda command: _refuse(command))
    limits: Mapping[str, float] = field(default_factory=dict)
    affinity: frozenset[int] = frozenset()
    distributions: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/"
    architecture: str = "x86_64"
    pods: Sequence[Pod] | None = None

    def text(self, path: str) -> str:
        """Read a text file. Raises UnreadableError if it is missing, forbidden, irregular or huge."""
        return self.octets(path).decode(errors="replace")

    def octets(self, path: str) -> bytes:
        """Read a file's bytes. Raises UnreadableError."""
        place = self.root / path
        try:
            if not stat.S_ISREG(place.stat().st_mode):
                raise UnreadableError(f"/{path} is not a regular file")
            with place.open("rb", buffering=0) as file:
                # In small pieces, because files of /proc/sys refuse to fill a large buffer.
                pieces = iter(lambda: file.read(PIECE), b"")
                content = b"".join(islice(pieces, LARGEST // PIECE + 1))
        except OSError as error:
            raise UnreadableError(f"/{path} cannot be read ({error.strerror or error})") from None
        if len(content) > LARGEST:
            raise UnreadableError(f"/{path} is larger than {LARGEST >> 20} MiB")
        return content

    def number(self, path: str) -> int:
        """Read a file's only number. Raises UnreadableError."""
        words = self.text(path).split()
        try:
            return int(words[0])
        except (IndexError, ValueError):
            raise UnreadableError(f"/{path} does not hold a number") from None

    def table(self, path: str) -> dict[str, int]:
        """Read the `name number` lines of a file such as /proc/meminfo. Raises UnreadableError."""
        values = {}
        for line in self.text(path).splitlines():
            name, *words = line.replace(":", " ").split() or [""]
            value = natural(words[0]) if words else None
            if value is not None:
                values[name] = value
        if not values:
            raise UnreadableError(f"/{path} does not hold any numbers")
        return values

    def exists(self, path: str) -> bool:
        """Return whether the file or folder exists; False if access is denied."""
        try:
            return (self.root / path).exists()
        except OSError:
            return False

    def paths(self, pattern: str) -> list[str]:
        """Return the matching paths below the root, sorted; [] if the folder cannot be listed."""
        try:
            return sorted(str(path.relative_to(self.root)) for path in self.root.glob(pattern))
        except OSError:
            return []

    @cached_property
    def nodes(self) -> dict[int, frozenset[int]]:
        """Return the CPUs of each NUMA node that has any."""
        nodes = {}
        for path in self.paths("sys/devices/system/node/node[0-9]*/cpulist"):
            node = natural(path.split("/")[-2].removeprefix("node"))
            cpus = parse_list(self.text(path))
            if node is not None and cpus:
                nodes[node] = cpus
        return nodes


def this_host(patience: float = PATIENCE) -> Host:
    """Return the machine that this process runs on; its commands may take `patience` seconds each."""
    try:
        nvml, why = load(), ""
    except NvmlMissingError as error:
        nvml, why = None, str(error)
    return Host(
        environment=dict(os.environ),
        nvml=nvml,
        why_no_gpu=why,
        run=partial(_run, patience=patience),
        limits=_limits(),
        affinity=_affinity(),
        distributions=_distributions(),
        directory=_directory(),
        architecture=os.uname().machine if hasattr(os, "uname") else "",
    )


def _refuse(command: Sequence[str]) -> str:
    raise UnreadableError(f"{command[0]} was not run")


def _run(command: Sequence[str], patience: float) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=patience, check=False
        )
    except FileNotFoundError:
        raise UnreadableError(f"{command[0]} is not installed") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise UnreadableError(f"{command[0]} did not run ({type(error).__name__})") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise UnreadableError(f"{command[0]} failed ({said[-1] if said else done.returncode})")
    return done.stdout[-LARGEST:].decode(errors="replace")


def _directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it was deleted while we were in it
        return "/"


def _limits() -> dict[str, float]:
    try:
        import resource
    except ImportError:  # not a Unix
        return {}
    limits = {}
    for name in ("NOFILE", "MEMLOCK", "STACK", "NPROC"):
        if hasattr(resource, f"RLIMIT_{name}"):
            soft, _ = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
            limits[name.lower()] = UNLIMITED if soft == resource.RLIM_INFINITY else float(soft)
    return limits


def _affinity() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _distributions() -> dict[str, str]:
    versions = {}
    for distribution in metadata.distributions():
        try:
            name, version = distribution.metadata["Name"], distribution.version
        except Exception:  # one broken package says nothing about the others
            continue
        if name and version:
            versions[re.sub(r"[-_.]+", "-", name).lower()] = version
    return versions
