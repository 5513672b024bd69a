"""Drive vLLM's own scheduler with a faked model runner under Fathom's hooks, and check what they record.

    PYTHON -m benchmarks.serving.vllm_scheduler MODEL

PYTHON has vllm, MODEL is a folder with its config. No GPU and no weights are needed: the scheduler is vLLM's,
and its tokens are zeros. A cache that is too small makes it preempt.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

from fathom.probe.engines import vllm as hooks
from fathom.probe.engines.serving import Serving
from fathom.probe.hooks.patches import Patches

BLOCK, PROMPT, GENERATED, BUDGET, LENGTH = 16, 40, 12, 64, 1024


class Session:
    """Collects what the hooks record."""

    def __init__(self) -> None:
        self.on_flush: list[Any] = []
        self.said: list[dict[str, Any]] = []
        self.steps: list[tuple[str, int, int]] = []
        self.notes: list[str] = []

    def say(self, record: dict[str, Any]) -> None:
        """Keep a table."""
        self.said.append(record)

    def note(self, _: str, text: str) -> None:
        """Keep a note."""
        self.notes.append(text)

    def signal(self, _: str, __: int, grad: bool, kind: str, samples: int = 0, tokens: int = 0) -> None:
        """Keep a step."""
        self.steps.append((kind, samples, tokens))

    def wait(self, _: str, __: int, ___: int) -> None:
        """Do nothing."""

    def save(self) -> None:
        """Do nothing."""

    def rows(self, kind: str) -> list[dict[str, Any]]:
        """Return all rows of a table."""
        for report in self.on_flush:
            report()
        tables = [record for record in self.said if record["t"] == kind]
        return [dict(zip(table["columns"], row, strict=True)) for table in tables for row in table["rows"]]


def scheduler_of(model: str, blocks: int, block: int = BLOCK, caching: bool = True, **options: Any) -> Any:
    """Return vLLM's scheduler for a cache of this many blocks; `options` are fields of SchedulerConfig."""
    import torch
    from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    cache = CacheConfig(block_size=block, enable_prefix_caching=caching)
    chosen = {"max_num_seqs": 8, "max_num_batched_tokens": BUDGET, "enable_chunked_prefill": True, **options}
    cache.num_gpu_blocks = blocks
    config = VllmConfig(
        model_config=ModelConfig(
            model=model, dtype="float32", skip_tokenizer_init=True, max_model_len=LENGTH,
        ),
        scheduler_config=SchedulerConfig(max_model_len=LENGTH, is_encoder_decoder=False, **chosen),
        cache_config=cache,
        device_config=DeviceConfig("cpu"),
    )  # fmt: skip
    spec = FullAttentionSpec(block_size=block, num_kv_heads=1, head_size=1, dtype=torch.float32)
    layers = KVCacheConfig(
        num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
    )
    manager = StructuredOutputManager(config)
    return Scheduler(config, layers, structured_output_manager=manager, block_size=block, log_stats=True)


def ask(scheduler: Any, count: int) -> None:
    """Add requests; the last one repeats the first one's prompt."""
    for number in range(count):
        scheduler.add_request(request_of(number, [number % (count - 1)] * PROMPT, GENERATED))


def request_of(
    number: int, prompt: list[int], generate: int, block: int = BLOCK, at: float | None = None
) -> Any:
    """Return a request as vLLM's engine hands it to the scheduler; it arrived at `at`, in seconds."""
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    init_none_hash(sha256)
    wanted = SamplingParams(max_tokens=generate, ignore_eos=True)
    hasher = get_request_block_hasher(block, sha256)
    return Request(str(number), prompt, wanted, None, arrival_time=at, block_hasher=hasher)


def run(scheduler: Any) -> None:
    """Serve until nothing is left, with a model that always says 0."""
    while scheduler.has_requests():
        output = scheduler.schedule()
        answer(scheduler, output)
        if not output.num_scheduled_tokens:
            return


def answer(scheduler: Any, output: Any) -> None:
    """Give each request of a batch that has been read a zero as its token."""
    from vllm.v1.outputs import ModelRunnerOutput

    names = list(output.num_scheduled_tokens)
    reading = [scheduler.requests[name] for name in names]
    sampled = [[0] if known.num_computed_tokens >= known.num_tokens else [] for known in reading]
    result = ModelRunnerOutput(names, {name: at for at, name in enumerate(names)}, sampled)
    scheduler.update_from_output(output, result)


def recorded(model: str, blocks: int, count: int) -> Session:
    """Serve requests under the hooks, and return what they recorded."""
    session, patches = Session(), Patches()
    hooks.install(Serving(session), patches)  # type: ignore[arg-type]
    scheduler = scheduler_of(model, blocks)
    ask(scheduler, count)
    run(scheduler)
    patches.undo()
    return session


def check(session: Session, count: int, preempted: bool) -> None:
    """Compare the record with what was asked for. Raises AssertionError."""
    assert not session.notes, session.notes
    requests, iterations = session.rows("requests"), session.rows("iterations")
    assert [row["generated"] for row in requests] == [GENERATED] * count, requests
    assert {row["prompt"] for row in requests} == {PROMPT}
    turns = [turn for row in iterations for turn in row["turns"]]
    for row in requests:
        mine = [turn for turn in turns if turn[0] == row["request"]]
        assert sum(turn[3] for turn in mine) == GENERATED
        if not preempted:
            assert sum(turn[2] for turn in mine if turn[1] == 0) == PROMPT - row["cached"], (row, mine)
            assert sum(turn[1] == 1 for turn in mine) == GENERATED - 1
    times = [[row[name] for name in ("start", "prepared", "computed", "end")] for row in iterations]
    assert all(time == sorted(time) for time in times)
    assert all(before[-1] <= after[0] for before, after in pairwise(times))
    assert any(span["what"] == "preempt" for span in session.rows("spans")) == preempted
    assert any(turn[1] == 2 for turn in turns) == preempted
    kinds = ", ".join(row["kind"] for row in iterations)
    print(f"{count} requests, {len(iterations)} iterations ({kinds}), preempted: {preempted}: as asked")


def main() -> None:
    """Check a large cache, and one that is too small."""
    model = sys.argv[1]
    check(recorded(model, blocks=100, count=4), 4, preempted=False)
    check(recorded(model, blocks=10, count=4), 4, preempted=True)


if __name__ == "__main__":
    main()
