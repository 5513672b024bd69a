"""Hooks of SGLang's tokenizer manager, in the process of its HTTP server: text to tokens, to the scheduler.

The scheduler and the detokenizer are other processes. The scheduler knows a request by the same key.
"""

from __future__ import annotations

from typing import Any

from fathom.pristine import time
from fathom.probe.engines.hooked import hook
from fathom.probe.engines.serving import PART, Serving
from fathom.probe.engines.sglang import TESTED
from fathom.probe.engines.vllm_frontend import tokenised
from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches, around, before

now = time.time_ns


def install(serving: Serving, patches: Patches) -> None:
    """Watch the requests that go to the scheduler, and the tokens that come back."""

    @guarded(PART)
    def sent(_: Any, asked: Any, *__: Any) -> None:
        for each in asked if isinstance(asked, list) else [asked]:
            serving.handed(each.rid)

    @guarded(PART)
    def answered(_: Any, outputs: Any) -> None:
        for rid, generated in zip(outputs.rids, getattr(outputs, "completion_tokens", ()), strict=False):
            request = serving.of(rid)
            if request is not None and request.token is None and generated:
                request.token = now()

    hooks = {
        "TokenizerManager._tokenize_one_request": around(tokenised(serving)),
        "TokenizerManager._batch_tokenize_and_process": around(tokenised(serving)),
        "TokenizerManager._send_one_request": before(sent),
        "TokenizerManager._send_batch_request": before(sent),
        "TokenizerManager._handle_batch_output": before(answered),
    }
    hook(serving, patches, "sglang.srt.managers.tokenizer_manager", TESTED, hooks)
