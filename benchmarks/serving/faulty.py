"""`transformers serve` with a fault planted by the variable SERVING_FAULT, for any Python with transformers.

    SERVING_FAULT=slow-tokenizer python -m benchmarks.serving.faulty serve MODEL ...
    SERVING_FAULT=slow-tokenizer python -m benchmarks.serving.faulty vllm serve MODEL ...

slow-tokenizer: 40 ms of work per prompt · slow-detokeniser: 4 ms per token · batch-limit: one request per
batch · no-prefix-cache: blocks are not shared. Other faults are options of the server or of the
client; so are the last two in vLLM.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from typing import Any

TOKENISE_S, DETOKENISE_S = 0.040, 0.004


def _work(seconds: float) -> None:
    """Hold the interpreter, as a tokenizer in Python does."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def _slowed(owner: Any, name: str, seconds: float) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def slow(*args: Any, **kwargs: Any) -> Any:
        _work(seconds)
        return original(*args, **kwargs)

    setattr(owner, name, slow)


def plant(fault: str) -> None:
    """Change transformers so that its server has the fault."""
    if fault == "slow-tokenizer":
        from transformers import PreTrainedTokenizerFast

        _slowed(PreTrainedTokenizerFast, "_encode_plus", TOKENISE_S)
    elif fault == "slow-detokeniser":
        from tokenizers import decoders

        class SlowStream:
            """Decodes as the original does, after some work: inside of the server's own code."""

            def __init__(self, *args: Any, **kwargs: Any) -> None:
                self._stream = original_stream(*args, **kwargs)

            def step(self, *args: Any) -> Any:
                _work(DETOKENISE_S)
                return self._stream.step(*args)

        original_stream, decoders.DecodeStream = decoders.DecodeStream, SlowStream
    elif fault in ("batch-limit", "no-prefix-cache"):
        from transformers import ContinuousBatchingConfig

        original = ContinuousBatchingConfig.__init__
        changed = {"max_requests_per_batch": 1} if fault == "batch-limit" else {"allow_block_sharing": False}

        @functools.wraps(original)
        def limited(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **{**kwargs, **changed})

        ContinuousBatchingConfig.__init__ = limited  # type: ignore[method-assign]


def main() -> None:
    """Plant the fault, and serve."""
    plant(os.environ.get("SERVING_FAULT", ""))
    if sys.argv[1:2] == ["vllm"]:
        del sys.argv[1]
        from vllm.entrypoints.cli.main import main as serve
    else:
        from transformers.cli.transformers import main as serve
    serve()


if __name__ == "__main__":
    main()
