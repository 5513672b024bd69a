"""A scripted agent: from a recording to a proven fix, through the tools of `fathom mcp` alone.

python examples/agent.py [FOLDER]

It works in FOLDER, by default a temporary one, on the click model of `clicks/`. It has no model that thinks:
its edit is `clicks/faster.py`, which does once what the first finding says the program does in every epoch.
"""

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters

HERE = Path(__file__).parent
PYTHON = sys.executable
WRITES = "--losses losses.json"


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the structured answer of a tool. Raises RuntimeError with its message."""
    result = await client.call_tool(tool, arguments)
    if result.is_error or result.structured_content is None:
        raise RuntimeError(result.content[0].text)
    return result.structured_content


async def improve(folder: Path, steps: int = 900) -> dict[str, Any]:
    """Record, read, change, prove, keep or revert; return what was found at each step."""
    shutil.copy(HERE / "clicks" / "train.py", folder)
    allowed = [
        word for script in ("train.py", "faster.py") for word in ("--allow-run", f"{PYTHON} {script} *")
    ]
    words = ["-m", "fathom", "mcp", "--root", str(folder), *allowed]
    async with Client(StdioServerParameters(command=PYTHON, args=words, env=None)) as client:
        before = (await call(client, "record", command=f"{PYTHON} train.py {WRITES}"))["facts"]
        print(before["verdict"]["headline"], before["verdict"]["advice"], sep="\n", flush=True)
        first = (await call(client, "findings", sounding=before["sounding"]))["rows"][0]
        print(f"first finding: {first['id']}, at {first.get('where', 'an unknown place')}", flush=True)

        changed = shutil.copy(HERE / "clicks" / "faster.py", folder)  # the one change
        sides = {
            "baseline": f"{PYTHON} train.py --steps {steps} {WRITES}",
            "candidate": f"{PYTHON} faster.py --steps {steps} {WRITES}",
        }
        verdict = (await call(client, "prove", **sides, metrics="losses.json", budget_s=240))["facts"]
        print(f"verdict: {verdict['verdict']}, ratio {verdict.get('ratio')}", flush=True)
        if verdict["verdict"] != "faster":
            Path(changed).unlink()  # revert
            return {"before": before, "finding": first, "verdict": verdict}
        after = (await call(client, "record", command=f"{PYTHON} faster.py --steps 4000 {WRITES}"))["facts"]
        steps_ms = [facts["step"]["clean_ms"] for facts in (before, after)]
        print(f"clean step: {steps_ms[0]} ms before, {steps_ms[1]} ms after", flush=True)
    return {"before": before, "finding": first, "verdict": verdict, "after": after}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else scratch)
        folder.mkdir(parents=True, exist_ok=True)
        asyncio.run(improve(folder))
