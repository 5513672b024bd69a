"""Launch commands of engines, a load test for them, and the constants after its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fathom.errors import BadInputError, file_error
from fathom.planner.serving.constants import Constants, calibration, names_for
from fathom.planner.serving.deployment import Deployment
from fathom.planner.serving.fitting import Observation, Predict, fit
from fathom.planner.serving.load import Fleet, Load, serve
from fathom.regular import read_json

_LENGTHS, _DEGREES = ("prompt", "output", "concurrency"), ("tp", "dp", "ep")
_MOST = 200  # results of a load test, each of which is simulated dozens of times
_MOST_REQUESTS = 16_000  # of all results, with four for each in flight
_PORT, _ROUTER, _BOOTSTRAP = "8000", "8192", "8998"  # of a replica, of the router, and of the handover
_VLLM_PROXY = "tests/v1/kv_connector/nixl_integration/toy_proxy_server.py"
_VLLM_TYPES = {"fp8": "fp8", "int8": "int8"}


def commands(fleet: Fleet, load: Load) -> dict[str, str]:
    """Return the commands that start a replica under vLLM and SGLang: of each pool, with its router, if
    prefill has its own replicas.
    """
    replica = _replica(fleet.decode, load)
    return _pooled(fleet, replica) if fleet.prefill else replica


def _pooled(fleet: Fleet, replica: Mapping[str, str]) -> dict[str, str]:
    """Return the commands of both pools, which have one layout and hand over the KV cache through NIXL.

    HOST is the address of a replica, PREFILL_1 and DECODE_1 are those of the first ones.
    """
    prefill, decode = (
        [f"{pool}_{n + 1}" for n in range(count)]
        for pool, count in (("PREFILL", fleet.prefill_replicas), ("DECODE", fleet.replicas))
    )
    made = {}
    for pool, role in (("prefill", "kv_producer"), ("decode", "kv_consumer")):
        config = f"""'{{"kv_connector": "NixlConnector", "kv_role": "{role}"}}'"""
        channel = "VLLM_NIXL_SIDE_CHANNEL_HOST=HOST"
        made[f"vllm {pool}"] = f"{channel} {replica['vllm']} --port {_PORT} --kv-transfer-config {config}"
    made["vllm router"] = (  # in vLLM's repository
        f"python {_VLLM_PROXY} --port {_ROUTER} --prefiller-hosts {' '.join(prefill)} "
        f"--prefiller-ports {' '.join([_PORT] * len(prefill))} --decoder-hosts {' '.join(decode)} "
        f"--decoder-ports {' '.join([_PORT] * len(decode))}"
    )
    for pool in ("prefill", "decode"):
        served = f"--host HOST --port {_PORT} --disaggregation-mode {pool}"
        through = "--disaggregation-transfer-backend nixl"
        made[f"sglang {pool}"] = f"{replica['sglang']} {served} {through}"
    made["sglang prefill"] += f" --disaggregation-bootstrap-port {_BOOTSTRAP}"
    pools = [f"--prefill http://{host}:{_PORT} {_BOOTSTRAP}" for host in prefill]
    pools += [f"--decode http://{host}:{_PORT}" for host in decode]
    made["sglang router"] = (
        f"python -m sglang_router.launch_router --pd-disaggregation {' '.join(pools)} --port {_ROUTER}"
    )
    return made


def _replica(of: Deployment, load: Load) -> dict[str, str]:
    """Return the commands that start one replica."""
    length, name = load.longest, _loaded(of)
    share = of.memory_share or of.engine.memory_share
    vllm = [f"vllm serve {name}", f"--tensor-parallel-size {of.tp}", f"--max-model-len {length}"]
    vllm += [f"--gpu-memory-utilization {share}", f"--max-num-seqs {of.batch_limit}"]
    vllm += [f"--max-num-batched-tokens {of.token_limit}"]
    sglang = [f"python -m sglang.launch_server --model-path {name}", f"--tp-size {of.tp * of.dp}"]
    sglang += [f"--context-length {length}", f"--mem-fraction-static {share}"]
    sglang += [f"--max-running-requests {of.batch_limit * of.dp}", f"--chunked-prefill-size {of.token_limit}"]
    if of.dp > 1:
        vllm.append(f"--data-parallel-size {of.dp}")
        sglang.append(f"--dp-size {of.dp} --enable-dp-attention")
    if of.ep > 1:
        vllm.append("--enable-expert-parallel")
        sglang.append(f"--ep-size {of.ep}")
    if of.drafted:  # DRAFT_MODEL is the model that proposes tokens
        vllm.append(
            f"""--speculative-config '{{"model": "DRAFT_MODEL", "num_speculative_tokens": {of.drafted}}}'"""
        )
        sglang.append("--speculative-algorithm STANDALONE --speculative-draft-model-path DRAFT_MODEL")
        sglang.append(f"--speculative-num-steps {of.drafted} --speculative-eagle-topk 1")
        sglang.append(f"--speculative-num-draft-tokens {of.drafted + 1}")
    if of.weights in _VLLM_TYPES:
        vllm.append(f"--quantization {_VLLM_TYPES[of.weights]}")
        sglang.append(f"--quantization {'w8a8_int8' if of.weights == 'int8' else of.weights}")
    if of.kv == "fp8":
        vllm.append("--kv-cache-dtype fp8")
        sglang.append("--kv-cache-dtype fp8_e4m3")
    return {"vllm": " ".join(vllm), "sglang": " ".join(sglang)}


def _loaded(of: Deployment) -> str:
    """Return the name by which engines load the model."""
    return of.model.repository or of.model.name


def load_test(of: Deployment, load: Load) -> dict[str, object]:
    """Return a load test whose result `recalibrated` reads: three concurrencies, and what runs them."""
    most = max(4, load.concurrency if load.arrival == "closed" else 64)
    counts = sorted({1, max(2, most // 4), most})
    lengths = {"prompt": load.prompt, "output": load.output}
    points: list[dict[str, object]] = [
        lengths | {"concurrency": c, "ttft_ms": None, "tpot_ms": None} for c in counts
    ]
    run = [
        f"vllm bench serve --model {_loaded(of)} --dataset-name random --random-input-len {load.prompt} "
        f"--random-output-len {load.output} --ignore-eos --max-concurrency {c} "
        f"--num-prompts {max(8, 4 * c)} --save-result"
        for c in counts
    ]
    layout = {name: getattr(of, name) for name in _DEGREES}
    return {"layout": layout, "fill_in": points, "or_run": run, "then": "fathom plan serve … --measured FILE"}


def recalibrated(candidates: Sequence[Deployment], path: Path) -> Constants:
    """Return the constants refitted to the results of a load test. Raises BadInputError without any."""
    content = _content(path)
    of = _tested(candidates, content, path)
    rows = [_point(row, path) for row in _rows(content, path)]
    if sum(load.count for load, _ in rows) > _MOST_REQUESTS:
        most = f"{_MOST_REQUESTS // 4:,}, all results together"
        raise BadInputError(f"The results in {path} have too many requests in flight; give at most {most}.")
    known = calibration()
    names = names_for(of)
    observations = [
        Observation(measured, _predict(of, load, tuple(measured)), names) for load, measured in rows
    ]
    fitted = fit(observations, known.values, known.spreads)
    return dict(known.values) | fitted.values()


def _predict(of: Deployment, load: Load, keys: tuple[str, ...]) -> Predict:
    def predict(values: Mapping[str, float]) -> dict[str, float]:
        served = serve(Fleet(of), load, values)
        predicted = {"tpot": 1e3 * served.tpot.mean(), "ttft": 1e3 * served.ttft.mean()}
        return {key: float(predicted[key]) for key in keys}

    return predict


def _content(path: Path) -> Any:
    try:
        return read_json(path)
    except OSError as error:
        raise BadInputError(file_error(path, error)) from None
    except ValueError:
        raise BadInputError(f"{path} is not JSON; give the result of a load test.") from None


def _tested(candidates: Sequence[Deployment], content: Any, path: Path) -> Deployment:
    """Return the layout that was tested: the file's, or the only one that is asked about."""
    layout = content.get("layout") if isinstance(content, dict) else None
    if isinstance(layout, dict):
        degrees = {name: layout.get(name, 1) for name in _DEGREES}
        if all(type(degree) is int for degree in degrees.values()):
            return candidates[0].having(**degrees)
    if len(candidates) > 1:
        raise BadInputError(f"{path} does not say which layout was tested; give --tp, --dp and --ep.")
    return candidates[0]


def _rows(content: Any, path: Path) -> list[dict[str, Any]]:
    rows = content.get("fill_in", [content]) if isinstance(content, dict) else content
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise BadInputError(f"{path} holds no results; fill in the file of --load-test.")
    if len(rows) > _MOST:
        raise BadInputError(f"{path} holds {len(rows):,} results; give at most {_MOST}, one of each load.")
    return rows


def _point(row: dict[str, Any], path: Path) -> tuple[Load, dict[str, float]]:
    """Return the load and the latencies of one result, ours or that of `vllm bench serve`."""
    if "total_input_tokens" in row and row.get("completed"):
        count = row["completed"]
        row = {
            "prompt": round(row["total_input_tokens"] / count),
            "output": round(row["total_output_tokens"] / count),
            "concurrency": row.get("max_concurrency"),
            "ttft_ms": row.get("mean_ttft_ms"),
            "tpot_ms": row.get("mean_tpot_ms"),
        }
    if not all(type(row.get(key)) is int and row[key] > 0 for key in _LENGTHS):
        raise BadInputError(f"A result in {path} lacks {', '.join(_LENGTHS)}; give whole numbers.")
    latencies = ("ttft", "tpot") if row["output"] > 1 else ("ttft",)  # one token has none between tokens
    measured = {key: row.get(f"{key}_ms") for key in latencies}
    kept = {
        key: float(value) for key, value in measured.items() if isinstance(value, (int, float)) and value > 0
    }
    if not kept:
        raise BadInputError(f"A result in {path} has neither ttft_ms nor tpot_ms; fill in one of them.")
    load = Load(row["prompt"], row["output"], "closed", row["concurrency"], requests=4 * row["concurrency"])
    return replace(load, spread=0.0), kept
