"""Stands in for the measuring process: $SCRIPT says what it does with each id, as `id=deed,…`."""

from __future__ import annotations

import json
import os
import sys
import time

ids = json.loads(sys.argv[1])["ids"]
deeds = dict(pair.split("=") for pair in os.environ["SCRIPT"].split(",") if pair)


def tell(**record: object) -> None:
    print(json.dumps(record), flush=True)


def ceiling(name: str, value: float) -> dict[str, object]:
    return {"id": name, "value": value, "unit": "B/s", "low": value, "high": value, "samples": 3}


for name in ids:
    tell(begin=name)
    match deeds.get(name, "measure"):
        case "measure":
            tell(ceiling=ceiling(name, 2.0))
        case "nan":
            tell(ceiling=ceiling(name, float("nan")))
        case "stranger":
            tell(ceiling={"id": name, "colour": "red"})
        case "chatter":
            print("warning: not a record\n[1, 2]\n\x00{", flush=True)
            tell(ceiling=ceiling(name, 2.0))
        case "missing":
            tell(missing={"id": name, "why": "the chip has none", "device": None})
        case "abort":
            os.abort()
        case "exit":
            print("CUDA error: an illegal memory access was encountered", file=sys.stderr)
            sys.exit(3)
        case "half":
            print('{"ceiling": {"id": "hbm', end="", flush=True)
            os._exit(1)
        case "hang":
            time.sleep(600)
    tell(end=name)
