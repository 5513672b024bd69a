"""Prompts in chunks and conversations fetched from the host have the answers of a model without cache."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fathom.lab.operations import prefill as lab  # noqa: E402 - it needs torch


def normed(rows: torch.Tensor) -> torch.Tensor:
    spread = rows.var(dim=-1, keepdim=True, unbiased=False)
    return (rows - rows.mean(dim=-1, keepdim=True)) / (spread + 1e-5).sqrt()


def state(tokens: list[int], cache: torch.Tensor, model: lab.Model) -> torch.Tensor:
    """The last token's state in double precision; all tokens are computed anew, head by head."""
    embeddings, attention, up, down, _ = (part.double() for part in model)
    rows, known = embeddings[torch.tensor(tokens)], cache.shape[3]
    seen = torch.ones(len(tokens), known + len(tokens), dtype=torch.bool).tril(known)
    for layer, weights in enumerate(attention):
        joint = (normed(rows) @ weights).view(len(tokens), -1, lab.GROUP + 2, lab.HEAD)
        heads = []
        for pair, before in zip(joint.unbind(1), cache[layer].double().unbind(1), strict=True):
            keys, values = (torch.cat([before[n], pair[:, lab.GROUP + n]]) for n in range(2))
            for query in pair[:, : lab.GROUP].unbind(1):
                scores = (query @ keys.T / lab.HEAD**0.5).masked_fill(~seen, -torch.inf)
                heads.append(torch.softmax(scores, dim=-1) @ values)
        rows = rows + torch.cat(heads, dim=1)
        wide = normed(rows) @ up[layer]
        rows = rows + wide * torch.sigmoid(wide) @ down[layer]
    return normed(rows)[-1]


def answer(tokens: list[int], cache: torch.Tensor, model: lab.Model, wanted: int) -> list[int]:
    known = list(tokens)
    for _ in range(wanted):
        known.append(int((state(known, cache, model) @ model[-1].double()).argmax()))
    return known[len(tokens) :]


def no_cache(model: lab.Model) -> torch.Tensor:
    return lab._room(model, 1, 0)[:, :, 0]


def test_all_requests_get_the_tokens_of_a_model_without_cache() -> None:
    prompt, last, cache, model, chunk = lab.arrival(3, "cpu")
    forms = [form(prompt, last, cache, model, chunk) for form in (lab.prompt_first, lab.chunked_prefill)]
    mine = answer(prompt[0].tolist(), no_cache(model), model, lab.NEW)
    wanted = prompt.shape[1] // chunk + lab.NEW
    theirs = [answer(row, cache[:, :, n], model, wanted) for n, row in enumerate(last.tolist())]
    for (tokens, _), (others, states) in forms:
        assert tokens.tolist() == [mine] and others.tolist() == theirs
        exact = state([int(last[1]), *theirs[1][:-1]], cache[:, :, 1], model)
        torch.testing.assert_close(states[1].double(), exact, rtol=1e-4, atol=1e-4)


def test_states_depend_on_every_token_of_the_prompt() -> None:
    prompt, last, cache, model, chunk = lab.arrival(4, "cpu")
    other = prompt.clone()
    other[0, 0] = (prompt[0, 0] + 1) % len(model[0])
    before, after = (lab.chunked_prefill(each, last, cache, model, chunk)[0][1] for each in (prompt, other))
    assert float((before - after).abs().max()) > 1e-3


def longest_gap(form, monkeypatch: pytest.MonkeyPatch) -> int:
    """The most tokens of the prompt that are read between two tokens of the other requests."""
    prompt, last, cache, model, chunk = lab.arrival(5, "cpu")
    gaps, iteration = [0], lab._iteration

    def counted(batch, model) -> None:
        gaps[-1] += sum(each.unread[0].shape[1] for each in batch if each.wanted == lab.NEW and each.unread)
        iteration(batch, model)
        if any(each.wanted != lab.NEW for each in batch):
            gaps.append(0)

    monkeypatch.setattr(lab, "_iteration", counted)
    form(prompt, last, cache, model, chunk)
    assert sum(gaps) == prompt.shape[1]
    return max(gaps)


def test_chunks_bound_the_prompt_tokens_between_two_tokens_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt, *_, chunk = lab.arrival(5, "cpu")
    assert longest_gap(lab.prompt_first, monkeypatch) == prompt.shape[1]
    assert longest_gap(lab.chunked_prefill, monkeypatch) == chunk


def test_a_fetched_conversation_goes_on_as_if_it_were_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after, cache, model = lab.conversation(6, "cpu")
    expected = answer([*before[0].tolist(), *after[0].tolist()], no_cache(model), model, lab.NEW)
    kept, read, iteration = cache.clone(), list[int](), lab._iteration

    def counted(batch, model) -> None:
        read.extend(each.unread[0].shape[1] for each in batch if each.unread)
        iteration(batch, model)

    monkeypatch.setattr(lab, "_iteration", counted)
    for form in (lab.read_again, lab.offloaded_cache):
        ((tokens, _),) = form(before, after, cache, model)
        assert tokens.tolist() == [expected]
    assert read == [before.shape[1] + after.shape[1], after.shape[1]]
    assert torch.equal(cache, kept)  # the input
