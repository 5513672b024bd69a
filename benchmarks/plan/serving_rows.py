"""Published serving measurements as deployments and loads, with the reason for each other row."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fathom.errors import BadInputError
from fathom.planner.hardware import hardware
from fathom.planner.serving.deployment import Deployment, engine
from fathom.planner.serving.load import Fleet, Load, serve
from fathom.planner.workload import model

DATA = Path(__file__).parents[3] / "shared" / "validation" / "serving.csv"
_GPUS = {"h100_sxm_80g": "h100", "a100_sxm_40g": "a100-40gb"}
_MODELS = {"13b GPT": "gpt-13b", "DeepSeek-R1-0528": "deepseek-r1", "Meta-Llama-3-70B": "llama3-70b",
           "Llama-4-Maverick-17B-128E": "llama-4-maverick",
           "Qwen3-235B-A22B-FP8": "qwen3-235b-a22b"}  # fmt: skip
_REQUESTS = {(8192, 1024): 1500, (1024, 8192): 1500, (32768, 1024): 1000, (1024, 32768): 1000}
_UNLIKE = {"fastertransformer": "fastertransformer", "nim(trt-llm)": "nim"}
_ORCA = 294


@dataclass(frozen=True)
class Row:
    """One published row: the fleet, its load, and what was measured, in ms and output tokens/s per GPU."""

    id: str
    chip: str
    engine: str
    trust: str
    fleet: Fleet
    load: Load
    measured: dict[str, float]

    def predict(self, values: Mapping[str, float], seed: int = 0) -> dict[str, float]:
        """Return the prediction of everything measured, and of nothing else."""
        served = serve(self.fleet, self.load, values, seed)
        predicted = {
            "tpot": 1e3 * served.tpot.mean(),
            "ttft": 1e3 * served.ttft.mean(),
            "throughput": served.output_rate / self.fleet.gpus,
        }
        return {key: float(predicted[key]) for key in self.measured}

    def shorter(self) -> Row:
        """Return the row with a part of its requests, for how predictions change with constants."""
        if self.load.arrival != "at-once" or self.load.requests < 500:
            return self
        return replace(self, load=replace(self.load, requests=self.load.requests // 4))


def read(path: Path = DATA) -> tuple[list[Row], dict[str, str]]:
    """Return the rows that a plan can express, and the reason for each other row by id."""
    rows, reasons = [], {}
    with path.open(newline="", encoding="utf-8") as file:
        for raw in csv.DictReader(file):
            why = _why_not(raw)
            try:
                if not why:
                    rows.append(_row(raw))
            except BadInputError as error:
                why = str(error)
            if why:
                reasons[raw["id"]] = why
    return rows, reasons


def _why_not(raw: dict[str, str]) -> str:
    if not raw["ttft_ms"] and not raw["tpot_ms"] and not raw["output_tok_s_per_gpu"]:
        return "requests per second of ShareGPT prompts, whose lengths are not given"
    if raw["gpu"].endswith("_cts"):
        return "a GPU with a limit of 1000 W, of which there is no datasheet"
    if raw["trust"] == "C":
        return "unverified: its precision and layout are guesses"
    if "saturated" in raw["notes"] and raw["engine"] == "trtllm" and raw["mode"] == "agg":
        return "saturated at a limit of the batch that is not given"
    if raw["mode"] == "mlperf-server":
        return "the rate is the highest that held a limit, not a load"
    if raw["mode"] == "mlperf-offline" and "llama2-70b" not in raw["model"]:
        return "the lengths of prompts are not given"
    return ""


def _row(raw: dict[str, str]) -> Row:
    fleet, load = _fleet(raw), replace(_load(raw), turns=math.inf)  # published loads may be long
    names = {"tpot": "tpot_ms", "ttft": "ttft_ms", "throughput": "output_tok_s_per_gpu"}
    measured = {key: float(raw[name]) for key, name in names.items() if raw[name]}
    if "tpot" in measured:
        measured.pop("throughput", None)
    if "saturated" in raw["notes"]:
        measured.pop("ttft", None)  # the queue before a limit of the batch that is not given
    return Row(
        raw["id"], fleet.decode.hardware.name, fleet.decode.engine.name, raw["trust"], fleet, load, measured
    )


def _fleet(raw: dict[str, str]) -> Fleet:
    if raw["mode"] != "disagg":
        tp, dp, ep = (int(raw[name] or 1) for name in ("tp", "attn_dp", "ep"))
        of = _deployment(raw, max(tp, 1), max(dp, 1) if raw["mode"] == "offline-max" else 1, max(ep, 1))
        return Fleet(of)  # of many equal replicas, one with its share of the load
    first, second = (_pool(raw, raw[name]) for name in ("prefill_layout", "decode_layout"))
    return Fleet(second[1], second[0], first[1], first[0])


def _pool(raw: dict[str, str], words: str) -> tuple[int, Deployment]:
    parsed = re.fullmatch(r"(\d+)w x tp(\d+)dp(\d+)etp(\d+)ep(\d+) bs(\d+)", words)
    assert parsed is not None, words
    count, tp, dp, _, ep, batch = (int(n) for n in parsed.groups())
    return count, _deployment(raw, tp, dp, ep).having(max_batch=batch if f"bs{batch}" != "bs1" else None)


def _deployment(raw: dict[str, str], tp: int, dp: int, ep: int) -> Deployment:
    weights = (re.match(r"fp4|fp8|bf16|fp16", raw["precision"]) or ["bf16"])[0]
    hardware_ = hardware(_GPUS.get(raw["gpu"], raw["gpu"].replace("_", "-")))
    name = raw["engine"].lower().split(" ")[0]
    if name == "trtllm":
        name = {"offline-max": "trtllm-bench", "mlperf-offline": "trtllm-engine"}.get(raw["mode"], name)
    name = _UNLIKE.get(name, name)
    plain = raw["model"].rsplit("/", 1)[-1]
    of = model(_MODELS.get(plain, plain))
    hopper = of.name.startswith("gpt-oss") and hardware_.name.startswith("h")
    kv = "fp8" if weights in ("fp4", "fp8") and name.startswith(("trtllm", "nim")) and not hopper else "bf16"
    return Deployment(of, hardware_, engine(name), tp, dp, ep, "bf16" if hopper else weights, kv)


def _load(raw: dict[str, str]) -> Load:
    if raw["mode"] == "mlperf-offline":
        return Load(_ORCA, round(float(raw["osl"])), "at-once", requests=3000, spread=0.9)
    prompt, output = int(raw["isl"]), int(raw["osl"])
    if raw["mode"] == "offline-max":
        return Load(prompt, output, "at-once", requests=_REQUESTS.get((prompt, output), 3000))
    if raw["arrival"].startswith("poisson"):
        return Load(prompt, output, "poisson", rate=float(raw["request_rate_rps"]), requests=300, spread=0.9)
    batch = int(re.search(r"\d+", raw["concurrency_or_batch"])[0])  # type: ignore[index]
    if raw["mode"] == "static-batch":
        return Load(prompt, output, "at-once", requests=batch, served=False)
    return Load(prompt, output, "closed", batch, requests=10 * batch, spread=0.1)
