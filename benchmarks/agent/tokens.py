"""Count the tokens of the answers of `fathom mcp`, in the vocabularies of three models.

    python -m benchmarks.agent.tokens [SOUNDING]

npm installs the vocabularies into a temporary folder. Writes `results/agent_tokens.json`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
from mcp import Client

from fathom.agent import Allowed, Roots, make_server

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "agent_tokens.json"
KEPT = ROOT / "examples" / "soundings" / "train_gpt-counters-h200.fathom.zip"
PACKAGES = ("gpt-tokenizer@3", "@anthropic-ai/tokenizer@0.0.4")
NUMBERS = "SELECT start_ns, end_ns, device, stream, correlation, registers FROM kernels"
OF_SOUNDING: tuple[tuple[str, dict[str, Any]], ...] = (
    ("report", {}), ("findings", {}), ("findings", {"headroom": True}), ("account", {}), ("kernel", {}),
    ("kernel", {"pattern": "layer_norm"}), ("query", {"sql": "SELECT * FROM kernels"}),
    ("query", {"sql": "SELECT * FROM ops"}), ("query", {"sql": NUMBERS}),
    ("query", {"sql": "SELECT values FROM samples"}), ("what_if", {"changes": ["launch=0"]}),
)  # fmt: skip
OTHERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("explain", {}), ("explain", {"kind": "host-launch-bound"}), ("lab_show", {}),
    ("lab_show", {"name": "transpose"}), ("machine", {}), ("machine", {"show": "checks"}),
)  # fmt: skip


def main() -> None:
    sounding = Path(sys.argv[1] if len(sys.argv) > 1 else KEPT).resolve()
    answers = anyio.run(_answers, sounding)
    counts = _counted([text for _, text in answers])
    rows = [{"answer": name, **count} for (name, _), count in zip(answers, counts, strict=True)]
    result = {"most": max(max(count.values()) for count in counts[1:]), "answers": rows}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


async def _answers(sounding: Path) -> list[tuple[str, str]]:
    """Return the definitions of the tools, then the text of each answer and of what is behind its handle."""
    server = make_server(Roots([sounding.parent]), Allowed(["python train.py"]))
    calls = [*((tool, {"sounding": sounding.name, **more}) for tool, more in OF_SOUNDING), *OTHERS]
    calls.append(("compare", {"baseline": [sounding.name], "candidate": [sounding.name]}))
    async with Client(server) as client:
        tools = [_defined(tool) for tool in (await client.list_tools()).tools]
        texts = [("definitions of the tools, without schemas of answers", json.dumps(tools))]
        for tool, arguments in calls:
            result = await client.call_tool(tool, arguments)
            texts.append((tool, result.content[0].text))
            handle = (result.structured_content or {}).get("more")
            if handle:
                rest = await client.call_tool("more", {"handle": handle})
                texts.append((f"more of {tool}", rest.content[0].text))
    return texts


def _defined(tool: Any) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}


def _counted(texts: list[str]) -> list[dict[str, int]]:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "install", "--silent", "--no-save", "--prefix", folder, *PACKAGES], check=True)
        script = Path(__file__).with_suffix(".mjs")
        done = subprocess.run(
            ["node", str(script)],
            input=json.dumps(texts),
            env={**os.environ, "NODE_MODULES": f"{folder}/node_modules"},
            capture_output=True,
            text=True,
            check=True,
        )
    counts: list[dict[str, int]] = json.loads(done.stdout)
    return counts


if __name__ == "__main__":
    main()
