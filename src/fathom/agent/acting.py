"""Tools that run programs: only allowed ones, without a shell, in the first root, for a limited time."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio
from anyio.abc import ByteReceiveStream, Process
from mcp.server.mcpserver import Context
from pydantic import Field

from fathom.agent.allowed import Allowed
from fathom.agent.reading import Reading
from fathom.errors import BadInputError, FathomError
from fathom.redaction import redact_text
from fathom.report import digest
from fathom.report.digest import Digest

if TYPE_CHECKING:
    from fathom.referee import Verdict

KEPT = 1 << 20  # bytes of a stream's end
SHOWN = 1200  # characters of a program's output
BEAT_S, GRACE_S = 5.0, 10.0  # between reports of progress; until a program that was asked to end is killed

Command = Annotated[str, Field(description="An allowed command, as you would type it; there is no shell.")]
Seconds = Annotated[int, Field(description="Seconds after which it is stopped.", ge=1)]


@dataclass
class Ran:
    """How a command of Fathom ended: its exit status, the ends of its output, and its time."""

    status: int
    out: bytes
    err: bytes
    seconds: float


@dataclass
class Acting:
    """The tools that run programs, one at a time, because programs that share a machine disturb timings."""

    reading: Reading
    allowed: Allowed
    limit_s: int

    def __post_init__(self) -> None:
        self._turn = anyio.Lock()

    async def record(
        self,
        ctx: Context,
        command: Command,
        name: Annotated[
            str | None, Field(description="Name of the sounding; by default the script's.")
        ] = None,
        depth: Annotated[
            Literal["auto", "surface", "timeline", "counters"],
            Field(description="Depth; auto is the deepest."),
        ] = "auto",
        steps: Annotated[int | None, Field(description="Steps recorded in each phase.", ge=1)] = None,
        timeout_s: Seconds = 900,
    ) -> Digest:
        """Record a program, stop it once the recording is complete, and show the verdict.

        An existing sounding is never overwritten.
        """
        words = self.allowed.command(command)
        path = self._free(name or words[-1 if len(words) == 1 else 1])
        options = ["--steps", str(steps)] if steps else []
        ran = await self._fathom(
            ctx,
            timeout_s,
            "run",
            "-o",
            str(path),
            "--stop-after",
            "--quiet",
            "--depth",
            depth,
            *options,
            "--",
            *words,
        )
        facts = {
            "sounding": self.reading.roots.shown(path) if path.exists() else None,
            "exit_status": ran.status,
            "seconds_s": ran.seconds,
            "messages": _end(ran.err),
            "output": _end(ran.out),
        }
        if not path.exists():
            raise BadInputError(f"{command!r} was not recorded (exit status {ran.status}): {_end(ran.err)}")
        with suppress(FathomError):
            report = await anyio.to_thread.run_sync(self.reading.report, str(path))
            facts |= {key: report.facts.get(key) for key in ("verdict", "step", "findings")}
        return Digest(digest.known(facts))

    async def prove(
        self,
        ctx: Context,
        baseline: Annotated[str, Field(description="An allowed command, or a function like norm.py:plain.")],
        candidate: Annotated[str, Field(description="Likewise, for the version that should be faster.")],
        metrics: Annotated[
            str | None,
            Field(description="For commands: .json or .npz file that both write, which is compared."),
        ] = None,
        inputs: Annotated[
            str | None,
            Field(description="For functions: inputs(seed), like norm.py:inputs; beside the baseline."),
        ] = None,
        margin: Annotated[float, Field(description="Largest difference that counts as the same.")] = 0.01,
        budget_s: Annotated[float, Field(description="Seconds for timing.", gt=0)] = 60,
        timeout_s: Seconds = 900,
    ) -> Digest:
        """Prove that the candidate is faster and computes the same; keep a change only if it is `faster`.

        Both run alternately, in fresh processes. The verdict is faster, slower, same, inconclusive, or
        refused with a reason, for example because results differ.
        """
        arguments = ["--json", "--margin", str(margin), "--budget", str(budget_s)]
        if _is_address(baseline) and _is_address(candidate):
            arguments += self._functions(baseline, candidate, inputs)
        else:
            arguments += self._commands(baseline, candidate, metrics)
        ran = await self._fathom(ctx, timeout_s, "prove", *arguments)
        return digest.proof(_verdict(_json(ran)))

    async def lab_run(
        self,
        ctx: Context,
        name: Annotated[str, Field(description="A technique, see lab_show.")],
        budget_s: Annotated[float, Field(description="Seconds for timing.", gt=0)] = 30,
        timeout_s: Seconds = 600,
    ) -> Digest:
        """Prove on this machine whether a technique of the lab is faster, and by how much."""
        from fathom import lab

        if name not in lab.techniques():
            raise BadInputError(f"There is no technique {name[:60]!r}; lab_show lists all.")
        ran = await self._fathom(ctx, timeout_s, "lab", "run", name, "--json", "--budget", str(budget_s))
        (outcome,) = _json(ran)
        kept = outcome.pop("kept")
        proof = digest.proof(_verdict(kept["verdict"])) if kept else Digest({})
        return Digest(digest.known(outcome | proof.facts), proof.rows, proof.columns)

    def _functions(self, baseline: str, candidate: str, inputs: str | None) -> list[str]:
        for address in filter(None, (baseline, candidate, inputs)):
            self.allowed.address(address)
            file = address.partition(":")[0]
            if file.endswith(".py"):
                self.reading.roots.inside(file)
        return [*(["--inputs", inputs] if inputs else []), "--", baseline, candidate]

    def _commands(self, baseline: str, candidate: str, metrics: str | None) -> list[str]:
        sides = [shlex.join(self.allowed.command(text)) for text in (baseline, candidate)]
        compared = ["--metrics", str(self.reading.roots.inside(metrics))] if metrics else []
        return ["--command", *compared, "--", *sides]

    def _free(self, name: str) -> Any:
        """Return a path in the first root that does not exist yet."""
        from fathom.recorder import default_name, free_output

        return free_output(default_name([name.removesuffix(".fathom")]), self.reading.roots.first)

    async def _fathom(self, ctx: Context, timeout_s: int, *arguments: str) -> Ran:
        """Run a command of Fathom. Raises BadInputError if it takes too long."""
        limit, began = min(timeout_s, self.limit_s), monotonic()
        async with self._turn, started(arguments, str(self.reading.roots.first)) as process:
            out, err = _Tail(), _Tail()
            with anyio.move_on_after(limit) as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(out.read, process.stdout)
                    tasks.start_soon(err.read, process.stderr)
                    tasks.start_soon(_beat, ctx, began, limit)
                    status = await process.wait()
                    await out.done.wait()
                    await err.done.wait()
                    tasks.cancel_scope.cancel()
        if scope.cancelled_caught:
            raise BadInputError(f"The program was stopped after {limit} s; raise timeout_s, or do less.")
        return Ran(status, bytes(out.kept), bytes(err.kept), monotonic() - began)


@asynccontextmanager
async def started(arguments: tuple[str, ...], folder: str) -> AsyncIterator[Process]:
    """Start Fathom in a process group, which is ended with everything in it."""
    # -P: a file of the project named like a module of Fathom is not imported in its place.
    command = [sys.executable, "-P", "-m", "fathom", *arguments]
    process = await anyio.open_process(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            await _end_group(process)


async def _end_group(process: Process) -> None:
    for how, grace in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, 1.0)):
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, how)
            with anyio.move_on_after(grace):
                await process.wait()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # its own children may outlive it
    await process.aclose()


class _Tail:
    """The end of a stream: however much a program prints, only KEPT bytes are held."""

    def __init__(self) -> None:
        self.kept = bytearray()
        self.done = anyio.Event()

    async def read(self, stream: ByteReceiveStream | None) -> None:
        assert stream is not None
        async for part in stream:
            self.kept += part
            del self.kept[:-KEPT]
        self.done.set()


async def _beat(ctx: Context, began: float, limit: int) -> None:
    """Report progress, so that clients do not give up on a long call."""
    while True:
        await anyio.sleep(BEAT_S)
        await ctx.report_progress(monotonic() - began, limit)


def _end(text: bytes) -> str:
    return redact_text(text.decode(errors="replace").strip())[-SHOWN:]


def _is_address(text: str) -> bool:
    return ":" in text and not any(letter.isspace() for letter in text)


def _json(ran: Ran) -> Any:
    """Return what the command printed. Raises BadInputError with its message if that is no JSON."""
    try:
        return json.loads(ran.out)
    except ValueError:
        message = _end(ran.err).rpartition("fathom: ")[2] or f"it ended with status {ran.status}"
        raise BadInputError(message) from None


def _verdict(content: Any) -> Verdict:
    import msgspec

    from fathom.referee import Verdict

    return msgspec.convert(content, Verdict)
