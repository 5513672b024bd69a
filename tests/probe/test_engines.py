"""Hooks of serving engines: what they record, and that a release without an attribute costs labels only."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
import types
from itertools import pairwise

import pytest

from fathom.probe.engines import http, llama, sglang, sglang_frontend, sockets, vllm, vllm_frontend
from fathom.probe.engines.hooked import hook
from fathom.probe.engines.serving import Serving
from fathom.probe.engines.transformers import _block as block_of
from fathom.probe.hooks.patches import Patches, around
from tests.probe.test_probe_fence import injected


class Session:
    """Stands in for the recording."""

    def __init__(self) -> None:
        self.on_flush: list = []
        self.said: list[dict] = []
        self.signals: list[tuple] = []
        self.notes: list[tuple[str, str]] = []

    def say(self, record: dict) -> None:
        self.said.append(record)

    def note(self, what: str, text: str) -> None:
        self.notes.append((what, text))

    def wait(self, cause: str, start: int, end: int) -> None:
        self.said.append({"t": "wait", "cause": cause, "start": start, "end": end})

    def signal(self, source: str, key: int, grad: bool, kind: str, samples=None, tokens=None) -> None:
        self.signals.append((source, kind, samples, tokens))

    def save(self) -> None:
        pass

    def rows(self, kind: str) -> list[dict]:
        for report in self.on_flush:
            report()
        tables = [record for record in self.said if record["t"] == kind]
        return [dict(zip(table["columns"], row, strict=True)) for table in tables for row in table["rows"]]


@pytest.fixture
def serving() -> Serving:
    return Serving(Session())  # type: ignore[arg-type]


def test_a_release_without_an_attribute_costs_labels_only(serving, monkeypatch):
    engine = types.ModuleType("engine_of_test")
    engine.Loop = type("Loop", (), {"step": lambda self: "result"})
    monkeypatch.setitem(sys.modules, "engine_of_test", engine)
    patches = Patches()
    hooks = {"Loop.step": around(lambda original, loop: "changed"), "Loop.gone": around(lambda: None)}
    hook(serving, patches, "engine_of_test", "engine 1.0", hooks)
    assert engine.Loop().step() == "result"
    ((_, text),) = serving.session.notes
    assert "has no Loop.gone" in text and "engine 1.0" in text


def test_hooks_are_removed(serving, monkeypatch):
    engine = types.ModuleType("engine_of_test")
    engine.Loop = type("Loop", (), {"step": lambda self: "result"})
    monkeypatch.setitem(sys.modules, "engine_of_test", engine)
    patches = Patches()
    hook(serving, patches, "engine_of_test", "engine 1.0", {"Loop.step": around(lambda *_: "changed")})
    assert engine.Loop().step() == "changed"
    patches.undo()
    assert engine.Loop().step() == "result"


def answered(serving: Serving, engine, chunks: list[bytes]) -> list[dict]:
    """Serve one POST whose handler calls `engine`, then sends the chunks; return what the client got."""
    got = []

    async def app(scope, receive, send):
        await asyncio.to_thread(engine)  # in another thread, with a copy of the context
        await send({"type": "http.response.start", "status": 200})
        for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def send(message):
        got.append(message)

    scope = {"type": "http", "method": "POST"}
    asyncio.run(http.application(serving, app)(scope, None, send))
    return got


class Model:
    """Has the methods of llama_cpp.Llama that are wrapped, and its order of calls."""

    n_tokens = 0

    def n_ctx(self):
        return 64

    def eval(self, tokens):
        self.n_tokens += len(tokens)

    def sample(self):
        return 7

    def generate(self, tokens):
        tokens = list(tokens)
        for _ in range(3):
            self.eval(tokens)
            tokens = [self.sample()]
            yield tokens[0]


@pytest.fixture
def model(serving, monkeypatch):
    module = types.ModuleType("llama_cpp.llama")
    methods = {"tokenize": lambda self, text: list(text), "detokenize": lambda self, tokens: b"x"}
    module.Llama = type("Llama", (Model,), {**vars(Model), **methods})
    monkeypatch.setitem(sys.modules, "llama_cpp.llama", module)
    patches = Patches()
    llama.install(serving, patches)
    yield module.Llama()
    patches.undo()


def test_a_request_is_followed_from_http_into_the_engine(serving, model):
    got = answered(serving, lambda: list(model.generate(range(5))), [b"a", b"b"])
    assert [message["type"] for message in got].count("http.response.body") == 3
    (request,) = serving.session.rows("requests")
    expected = {"prompt": 5, "generated": 3, "chunks": 2, "status": 200, "cached": 0}
    assert expected.items() <= request.items()
    order = [request[name] for name in ("arrival", "submitted", "token", "sent", "end")]
    assert order == sorted(order)


def test_iterations_have_kind_turns_and_cache(serving, model):
    answered(serving, lambda: list(model.generate(range(5))), [b"a"])
    rows = serving.session.rows("iterations")
    assert [row["kind"] for row in rows] == ["prefill", "decode", "decode"]
    assert [row["turns"] for row in rows] == [[(0, 0, 5, 1)], [(0, 1, 1, 1)], [(0, 1, 1, 1)]]
    assert [row["kv_used"] for row in rows] == [5, 6, 7]
    assert all(row["start"] <= row["computed"] <= row["sampled"] <= row["end"] for row in rows)
    assert serving.session.signals == [("engine", "prefill", 1, 5), *[("engine", "decode", 1, 1)] * 2]


def test_time_without_requests_is_a_step_of_its_own_kind(serving, model):
    for _ in range(2):
        answered(serving, lambda: list(model.generate(range(2))), [b"a"])
    kinds = [kind for _, kind, *_ in serving.session.signals]
    assert kinds == ["prefill", "decode", "decode", "waiting", "prefill", "decode", "decode"]


def test_a_client_that_leaves_ends_its_request(serving, model):
    async def app(scope, receive, send):
        list(model.generate(range(2)))
        raise ConnectionError

    with pytest.raises(ConnectionError):
        asyncio.run(http.application(serving, app)({"type": "http", "method": "POST"}, None, None))
    (request,) = serving.session.rows("requests")
    assert request["end"] >= request["token"] and request["sent"] is None


def test_requests_that_reach_no_engine_are_not_recorded(serving):
    answered(serving, lambda: None, [b"a"])
    assert serving.session.rows("requests") == []


class Mode:
    """Has the questions of SGLang's ForwardMode."""

    def __init__(self, decodes: bool) -> None:
        self.is_decode, self.is_extend = lambda: decodes, lambda: not decodes


class Req:
    """Has the fields of SGLang's Req."""

    def __init__(self, rid: str, prompt: int, tokens: int) -> None:
        self.rid, self.origin_input_ids, self.output_ids, self.tokens = rid, list(range(prompt)), [], tokens
        self.cached_tokens = self.retraction_count = 0

    def finished(self) -> bool:
        return len(self.output_ids) >= self.tokens


def batch(decodes: bool, *reqs: Req, lengths: tuple[int, ...] = (), decoding: tuple[Req, ...] = ()):
    facts = {"extend_lens": list(lengths), "decoding_reqs": list(decoding), "forward_mode": Mode(decodes)}
    return types.SimpleNamespace(reqs=list(reqs), **facts)


class SGLangScheduler:
    """Has the methods of SGLang's Scheduler that are wrapped."""

    max_total_num_tokens = 100
    token_to_kv_pool_allocator = types.SimpleNamespace(available_size=lambda: 60)

    def __init__(self) -> None:
        self.waiting_queue: list[Req] = []

    def _add_request_to_queue(self, req, is_retracted=False):
        self.waiting_queue.append(req)

    def get_next_batch_to_run(self, batch):
        self.waiting_queue = [req for req in self.waiting_queue if req not in batch.reqs]
        return batch

    def run_batch(self, batch):
        pass

    def process_batch_result(self, batch, result):
        for req in batch.reqs:
            req.output_ids.append(7)

    def on_idle(self):
        pass


@pytest.fixture
def scheduler(serving, monkeypatch):
    module = types.ModuleType("sglang.srt.managers.scheduler")
    module.Scheduler = type("Scheduler", (SGLangScheduler,), dict(vars(SGLangScheduler)))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    patches = Patches()
    sglang.install(serving, patches)
    yield module.Scheduler()
    patches.undo()


def test_batches_that_overlap_are_ended_in_order(serving, scheduler):
    """As SGLang overlaps them: the next batch is run before the result of the one before is processed."""
    a, b = Req("a", 5, 3), Req("b", 4, 2)
    for req in (a, b):
        scheduler._add_request_to_queue(req)
    plan = [
        batch(False, a, lengths=(5,)),
        batch(False, b, a, lengths=(4, 1), decoding=(a,)),
        batch(True, a, b),
    ]
    waiting = None
    for chosen in [*plan, None]:
        if chosen is not None:
            scheduler.run_batch(scheduler.get_next_batch_to_run(chosen))
        if waiting is not None:
            scheduler.process_batch_result(waiting, None)
        waiting = chosen
    scheduler.on_idle()
    rows = serving.session.rows("iterations")
    assert [row["kind"] for row in rows] == ["prefill", "mixed", "decode"]
    assert [row["turns"] for row in rows] == [
        [(0, 0, 5, 1)],
        [(1, 0, 4, 1), (0, 1, 1, 1)],
        [(0, 1, 1, 1), (1, 1, 1, 1)],
    ]
    assert rows[0]["waiting"] == 1 and {(row["kv_used"], row["kv_total"]) for row in rows} == {(40, 100)}
    assert all(before["end"] <= later["start"] for before, later in pairwise(rows))
    requests = serving.session.rows("requests")
    assert [(row["prompt"], row["generated"]) for row in requests] == [(5, 3), (4, 2)]


def test_decodes_of_sglang_read_the_drafts_that_they_verify(serving, scheduler):
    a = Req("a", 5, 2)
    scheduler.server_args = types.SimpleNamespace(speculative_num_draft_tokens=4)
    scheduler._add_request_to_queue(a)
    speculates, plain = (
        types.SimpleNamespace(is_none=lambda: False),
        types.SimpleNamespace(is_none=lambda: True),
    )
    for chosen, algorithm in ((batch(False, a, lengths=(5,)), plain), (batch(True, a), speculates)):
        chosen.spec_algorithm = algorithm
        scheduler.run_batch(scheduler.get_next_batch_to_run(chosen))
        scheduler.process_batch_result(chosen, None)
    turns = [row["turns"] for row in serving.session.rows("iterations")]
    assert turns == [[(0, 0, 5, 1)], [(0, 1, 4, 1)]]


class VllmScheduler:
    """Has the methods and fields of vLLM's Scheduler that are used; it reads 4 tokens an iteration."""

    kv_cache_config = types.SimpleNamespace(num_blocks=10)
    block_size = 4

    def __init__(self) -> None:
        self.requests: dict[str, types.SimpleNamespace] = {}

    def add_request(self, request):
        self.requests[request.request_id] = request

    def schedule(self):
        counts = {}
        for name, request in self.requests.items():
            counts[name] = min(4, request.num_tokens - request.num_computed_tokens)
            request.num_computed_tokens += counts[name]
        return types.SimpleNamespace(num_scheduled_tokens=counts)

    def _preempt_request(self, request, at):
        request.num_preemptions, request.num_computed_tokens = request.num_preemptions + 1, 0

    def update_from_output(self, output, result):
        for name in output.num_scheduled_tokens:
            request = self.requests[name]
            if request.num_computed_tokens == request.num_tokens:
                request.num_tokens += 1
                request.num_output_tokens += 1
        self.requests = {name: r for name, r in self.requests.items() if not r.is_finished()}

    def finish_requests(self, names, status):
        for name in [names] if isinstance(names, str) else names:
            self.requests.pop(name, None)

    def get_kv_cache_usage(self):
        return 0.5

    def get_request_counts(self):
        return len(self.requests), 2


@pytest.mark.parametrize("backend", ["mp", "uni"])
def test_a_preempted_request_of_vllm_is_read_again(serving, monkeypatch, backend):
    """6 prompt tokens in chunks of 4, one decode, a preemption, 8 tokens read again, one decode.

    The engine waits for its workers from the schedule of a batch to its tokens, if it has any.
    """
    module = types.ModuleType("vllm.v1.core.sched.scheduler")
    module.Scheduler = type("Scheduler", (VllmScheduler,), dict(vars(VllmScheduler)))
    of = types.SimpleNamespace(distributed_executor_backend=backend)
    module.Scheduler.vllm_config = types.SimpleNamespace(parallel_config=of)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    vllm.install(serving, Patches())
    scheduler, counts = (
        module.Scheduler(),
        {"num_computed_tokens": 0, "num_preemptions": 0, "num_output_tokens": 0},
    )
    asked = types.SimpleNamespace(
        request_id="x",
        prompt_token_ids=[1] * 6,
        num_prompt_tokens=6,
        num_tokens=6,
        arrival_time=1.5,
        **counts,
    )
    asked.is_finished = lambda: asked.num_output_tokens == 4
    scheduler.add_request(asked)
    while scheduler.requests:
        if asked.num_output_tokens == 2 and not asked.num_preemptions:
            scheduler._preempt_request(asked, 0.0)
        scheduler.update_from_output(scheduler.schedule(), None)
    turns = [row["turns"][0] for row in serving.session.rows("iterations")]
    assert turns == [(0, 0, 4, 0), (0, 0, 2, 1), (0, 1, 1, 1), (0, 2, 4, 0), (0, 2, 4, 1), (0, 1, 1, 1)]
    (request,) = serving.session.rows("requests")
    assert request["arrival"] == 1_500_000_000 and request["generated"] == 4
    assert [span["what"] for span in serving.session.rows("spans")] == ["preempt"]
    assert {row["kv_block"] for row in serving.session.rows("iterations")} == {4}
    waits = [record for record in serving.session.said if record["t"] == "wait"]
    rows = serving.session.rows("iterations")
    assert [(wait["start"], wait["end"]) for wait in waits] == (
        [(row["prepared"], row["computed"]) for row in rows] if backend == "mp" else []
    )


def test_a_request_of_vllm_waits_in_the_queue_from_its_arrival_in_the_engines_process(serving, monkeypatch):
    """While an iteration runs, the scheduler does not take it; that is no time of the HTTP server's."""
    scheduler, core = (
        types.ModuleType(f"vllm.v1.{name}") for name in ("core.sched.scheduler", "engine.core")
    )
    scheduler.Scheduler = type("Scheduler", (VllmScheduler,), dict(vars(VllmScheduler)))
    core.EngineCore = type("EngineCore", (), {"preprocess_add_request": lambda self, request: (request, 0)})
    for module in (scheduler, core):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    vllm.install(serving, Patches())
    about = {"request_id": "x", "prompt_token_ids": [1, 2], "arrival_time": 1.5}
    started = time.time_ns()
    asked, _ = core.EngineCore().preprocess_add_request(types.SimpleNamespace(**about))
    received = time.time_ns()
    time.sleep(0.01)
    taken = scheduler.Scheduler()
    taken.add_request(asked)
    taken.finish_requests("x", None)
    (request,) = serving.session.rows("requests")
    assert request["arrival"] == 1_500_000_000 and started <= request["submitted"] <= received


def test_a_request_of_vllm_that_its_frontend_ends_is_recorded(serving, monkeypatch):
    """A stop string is found in the frontend, which then aborts the request; or its client leaves."""
    module = types.ModuleType("vllm.v1.core.sched.scheduler")
    module.Scheduler = type("Scheduler", (VllmScheduler,), dict(vars(VllmScheduler)))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    vllm.install(serving, Patches())
    scheduler = module.Scheduler()
    for name in ("stopped", "queued"):
        counts = {"num_computed_tokens": 0, "num_preemptions": 0, "num_output_tokens": 0}
        about = {"prompt_token_ids": [1, 2], "num_prompt_tokens": 2, "num_tokens": 2, "arrival_time": 1.5}
        asked = types.SimpleNamespace(request_id=name, is_finished=lambda: False, **about, **counts)
        scheduler.add_request(asked)
    output = scheduler.schedule()
    scheduler.finish_requests({"stopped"}, None)
    scheduler.finish_requests("queued", None)
    scheduler.update_from_output(types.SimpleNamespace(num_scheduled_tokens={}), None)
    assert set(output.num_scheduled_tokens) == {"stopped", "queued"}
    assert [row["key"] for row in serving.session.rows("requests")] == ["stopped", "queued"]
    (iteration,) = serving.session.rows("iterations")
    assert [turn[3] for turn in iteration["turns"]] == [0, 0]


class Detokenizer:
    """Has the method of vLLM's detokenizer that is wrapped."""

    def update(self, tokens, stopped):
        time.sleep(0.001)


class Renderer:
    """Has the method of vLLM's renderer that is wrapped."""

    async def tokenize_prompt_async(self, prompt, params):
        await asyncio.sleep(0.001)
        return list(prompt)


class Processor:
    """Has the methods and fields of vLLM's OutputProcessor that are used."""

    def __init__(self):
        self.request_states = {}

    def add_request(self, request, prompt=None, parent_req=None, request_index=0, queue=None):
        state = types.SimpleNamespace(detokenizer=sys.modules["vllm.v1.engine.detokenizer"].Of())
        self.request_states[request.request_id] = state

    def process_outputs(self, outputs, timestamp=None):
        for output in outputs:
            self.request_states[output.request_id].detokenizer.update(output.new_token_ids, False)


@pytest.fixture
def frontend(serving, monkeypatch):
    """Return stand-ins of vLLM's frontend under the hooks: a renderer and a processor of outputs."""
    classes = {"v1.engine.output_processor": Processor, "v1.engine.detokenizer": Detokenizer}
    names = ("OutputProcessor", "BaseIncrementalDetokenizer", "BaseRenderer")
    for (module, kind), name in zip({**classes, "renderers.base": Renderer}.items(), names, strict=True):
        made = types.ModuleType(f"vllm.{module}")
        setattr(made, name, type(name, (kind,), dict(vars(kind))))
        monkeypatch.setitem(sys.modules, made.__name__, made)
    detokenizers = sys.modules["vllm.v1.engine.detokenizer"]
    detokenizers.Of = type("Fast", (detokenizers.BaseIncrementalDetokenizer,), {})
    patches = Patches()
    vllm_frontend.install(serving, patches)
    yield (
        sys.modules["vllm.renderers.base"].BaseRenderer(),
        sys.modules["vllm.v1.engine.output_processor"].OutputProcessor(),
    )
    patches.undo()


def served_by(serving: Serving, frontend, keys: tuple[str, ...]) -> None:
    """Answer one POST with two tokens for each of the engine's requests `keys`."""
    renderer, processor = frontend

    async def app(scope, receive, send):
        await renderer.tokenize_prompt_async("text", None)
        for key in keys:
            processor.add_request(types.SimpleNamespace(request_id=key))
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"head", "more_body": True})
        for _ in range(2):
            outputs = [types.SimpleNamespace(request_id=key, new_token_ids=[7]) for key in keys]
            processor.process_outputs(outputs)
            await send({"type": "http.response.body", "body": b"token", "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def send(message):
        pass

    asyncio.run(http.application(serving, app)({"type": "http", "method": "POST"}, None, send))


def test_a_request_is_handed_from_http_to_an_engine_in_another_process(serving, frontend):
    served_by(serving, frontend, ("one-1", "one-2"))
    served_by(serving, frontend, ("two",))
    rows = serving.session.rows("handed")
    assert [(row["request"], row["key"]) for row in rows] == [(0, "one-1"), (0, "one-2"), (1, "two")]
    assert {(row["status"], row["chunks"]) for row in rows} == {(200, 3)}
    for row in rows:
        times = [row[name] for name in ("arrival", "handed", "sent", "end")]
        assert times == sorted(times)
    kinds = [(span["request"], span["what"]) for span in serving.session.rows("spans")]
    assert kinds.count((1, "tokenise")) == 1 and kinds.count((0, "detokenise")) == 4
    assert serving.session.rows("requests") == []  # the engine records them


def test_first_chunk_with_a_token_comes_after_the_head(serving, frontend):
    """A chat's first chunk has the role alone: the time to the first token must not end there."""
    served_by(serving, frontend, ("one",))
    (row,) = serving.session.rows("handed")
    (tokenised,) = (span for span in serving.session.rows("spans") if span["what"] == "tokenise")
    first = min(span["end"] for span in serving.session.rows("spans") if span["what"] == "detokenise")
    assert tokenised["end"] <= row["handed"] and row["sent"] >= first


def test_offline_generation_hands_nothing_over(serving, frontend):
    _, processor = frontend
    processor.add_request(types.SimpleNamespace(request_id="one"))
    processor.process_outputs([types.SimpleNamespace(request_id="one", new_token_ids=[7])])
    assert serving.session.rows("handed") == serving.session.rows("spans") == []


class TokenizerManager:
    """Has the methods of SGLang's TokenizerManager that are wrapped."""

    async def _tokenize_one_request(self, asked):
        await asyncio.sleep(0.001)
        return asked

    async def _batch_tokenize_and_process(self, size, asked):
        await asyncio.sleep(0.001)
        return asked

    async def _send_one_request(self, asked):
        pass

    async def _send_batch_request(self, asked):
        pass

    async def _handle_batch_output(self, outputs):
        pass


@pytest.fixture
def manager(serving, monkeypatch):
    module = types.ModuleType("sglang.srt.managers.tokenizer_manager")
    module.TokenizerManager = type("TokenizerManager", (TokenizerManager,), dict(vars(TokenizerManager)))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    patches = Patches()
    sglang_frontend.install(serving, patches)
    yield module.TokenizerManager()
    patches.undo()


def test_requests_are_handed_to_sglangs_scheduler_with_their_first_tokens(serving, manager):
    single, *pair = (types.SimpleNamespace(rid=rid) for rid in ("one", "two-1", "two-2"))

    async def answered(send, rids, counts):
        await manager._handle_batch_output(types.SimpleNamespace(rids=rids, completion_tokens=counts))
        await send({"type": "http.response.body", "body": b"chunk", "more_body": True})

    async def app(scope, receive, send):
        if scope["path"] == "/one":
            await manager._send_one_request(await manager._tokenize_one_request(single))
            await answered(send, ["one", "of nobody"], [0, 1])
        else:
            await manager._send_batch_request(await manager._batch_tokenize_and_process(2, pair))
            await answered(send, ["two-2"], [1])
        await send({"type": "http.response.body", "body": b""})

    async def send(message):
        pass

    for path in ("/one", "/two"):
        scope = {"type": "http", "method": "POST", "path": path}
        asyncio.run(http.application(serving, app)(scope, None, send))
    rows = serving.session.rows("handed")
    assert [(row["request"], row["key"]) for row in rows] == [(0, "one"), (1, "two-1"), (1, "two-2")]
    assert [row["sent"] is not None for row in rows] == [False, True, True]
    spans = serving.session.rows("spans")
    assert [(span["request"], span["what"]) for span in spans] == [(0, "tokenise"), (1, "tokenise")]


PAUSE, LATE, CHUNK = 0.15, 0.1, 20_000


async def slowly_read(serving: Serving, pause: float) -> dict:
    """Serve one request over TCP; its client reads after a pause. Return the request's row."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport):
            sockets.follow(transport)
            self.transport = transport

        def data_received(self, data):
            serving.transport.set(self.transport)
            serving.read.set(sockets.received(self.transport))
            self.task = asyncio.ensure_future(self.answer())

        async def answer(self):
            async def app(scope, receive, send):
                serving.submitted("one", [1, 2, 3])
                serving.batch = None
                await send({"type": "http.response.body", "body": b"x" * CHUNK})

            async def send(message):
                self.transport.write(message["body"])

            await http.application(serving, app)({"type": "http", "method": "POST"}, None, send)
            done.set()

    server = await loop.create_server(Protocol, "127.0.0.1", 0)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    client.connect(server.sockets[0].getsockname())
    await asyncio.sleep(0.01)  # the connection is accepted
    asked = time.time_ns()
    client.sendall(b"ask")
    time.sleep(LATE)  # the event loop is busy
    free = time.time_ns()
    await done.wait()
    await asyncio.sleep(pause)
    client.setblocking(False)
    left = CHUNK
    while left:
        left -= len(await loop.sock_recv(client, left))
    await asyncio.sleep(0.05)
    client.close()
    server.close()
    (row,) = serving.session.rows("requests")
    return {**row, "asked": asked, "free": free}


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's timestamps of Linux")
def test_arrival_is_the_kernels_and_a_slow_client_holds_its_request_open(serving):
    sockets.listen()
    row = asyncio.run(slowly_read(serving, PAUSE))
    assert row["asked"] <= row["arrival"] < row["free"] - LATE * 1e9 / 2
    (span,) = serving.session.rows("spans")
    assert span["what"] == "send" and span["end"] - span["start"] > PAUSE * 1e9 * 0.8
    assert row["end"] == span["end"]


class Transport:
    """Has the methods of a transport that are used; the event loop keeps its socket to itself."""

    def __init__(self, buffered: int) -> None:
        self.buffered = buffered

    def get_write_buffer_size(self):
        return self.buffered

    def get_extra_info(self, name):
        return None


@pytest.mark.parametrize(("buffered", "spans"), [(0, []), (100, ["send"])])
def test_a_write_waits_for_the_client_only_behind_earlier_ones(serving, buffered, spans):
    """Otherwise it waited for a core, which is no fault of the client's."""

    async def app(scope, receive, send):
        serving.submitted("one", [1, 2, 3])
        await send({"type": "http.response.body", "body": b"x"})

    async def send(message):
        time.sleep(0.005)

    serving.transport.set(Transport(buffered))
    asyncio.run(http.application(serving, app)({"type": "http", "method": "POST"}, None, send))
    assert [span["what"] for span in serving.session.rows("spans")] == spans


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's clock of Linux")
@pytest.mark.parametrize(("ticks", "waited"), [(0, 0), (1, 0), (3, 3)])
def test_without_a_timestamp_one_tick_counts_as_no_time(monkeypatch, ticks, waited):
    """A tick may pass right after data came; uvloop's sockets have no timestamps."""
    of_tick = sockets.TICK_NS // 1_000_000
    known = bytes(sockets.LAST_DATA) + (ticks * of_tick).to_bytes(4, sys.byteorder)
    connection = types.SimpleNamespace(family=socket.AF_INET, getsockopt=lambda *_: known)
    transport = types.SimpleNamespace(get_extra_info=lambda _: connection)
    monkeypatch.setattr(sockets, "now", lambda: 1_000_000_000)
    assert sockets.received(transport) == 1_000_000_000 - waited * of_tick * 1_000_000


PROGRAM = """
import importlib.util
importlib.util.find_spec("llama_cpp.server.app")
import llama_cpp.server.app
from fathom.probe import current
print(current.session is not None)
"""


def test_recording_begins_although_the_program_first_asks_whether_a_module_exists(tmp_path):
    """transformers asks so for torch before anything imports it."""
    server = tmp_path / "site" / "llama_cpp" / "server"
    server.mkdir(parents=True)
    for file in (server.parent / "__init__.py", server / "__init__.py", server / "app.py"):
        file.write_text("")
    environment = injected(tmp_path)
    environment["PYTHONPATH"] += f":{tmp_path / 'site'}"
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr


def test_decodes_of_vllm_read_the_drafts_that_they_verify(serving, monkeypatch):
    """Three drafted tokens are scheduled beside the last one, of which the first is accepted."""

    class Speculating(VllmScheduler):
        def schedule(self):
            counts = {}
            for name, request in self.requests.items():
                counts[name] = 6 if not request.num_computed_tokens else 4
                request.num_computed_tokens += counts[name]
            return types.SimpleNamespace(num_scheduled_tokens=counts)

        def update_from_output(self, output, result):
            for name, count in output.num_scheduled_tokens.items():
                request, made = self.requests[name], 1 if count == 6 else 2
                request.num_computed_tokens -= 0 if count == 6 else count - made
                request.num_tokens += made
                request.num_output_tokens += made
            self.requests = {name: r for name, r in self.requests.items() if not r.is_finished()}

    module = types.ModuleType("vllm.v1.core.sched.scheduler")
    module.Scheduler = type("Scheduler", (Speculating,), {**vars(VllmScheduler), **vars(Speculating)})
    monkeypatch.setitem(sys.modules, module.__name__, module)
    vllm.install(serving, Patches())
    scheduler = module.Scheduler()
    counts = {"num_computed_tokens": 0, "num_preemptions": 0, "num_output_tokens": 0, "num_tokens": 6}
    asked = types.SimpleNamespace(
        request_id="x", prompt_token_ids=[1] * 6, num_prompt_tokens=6, arrival_time=1.5, **counts
    )
    asked.is_finished = lambda: asked.num_output_tokens == 5
    scheduler.add_request(asked)
    while scheduler.requests:
        scheduler.update_from_output(scheduler.schedule(), None)
    turns = [row["turns"][0] for row in serving.session.rows("iterations")]
    assert turns == [(0, 0, 6, 1), (0, 1, 4, 2), (0, 1, 4, 2)]


def test_the_block_of_transformers_is_that_of_all_its_allocators():
    def cache(*tokens: int, **more: int) -> types.SimpleNamespace:
        pages = {str(at): types.SimpleNamespace(tokens_per_page=n) for at, n in enumerate(tokens)}
        return types.SimpleNamespace(cache_allocators=pages, **more)

    assert block_of(cache(32, 32)) == 32 and block_of(cache(32, 96)) is None
    assert block_of(types.SimpleNamespace(block_size=256)) == 256
    assert block_of(types.SimpleNamespace()) is None
