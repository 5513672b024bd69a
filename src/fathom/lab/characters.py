"""Models of the next character, trained in seconds on the documentation that Python brings along."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pydoc_data import topics

import torch
from torch import Tensor

CHARACTERS = 128
HELD_OUT = 20_000  # characters at the end of the text, on which no model is trained
BATCH = 128
Model = tuple[Tensor, ...]
Scores = Callable[[Tensor, Model], Tensor]  # the logits of the characters after windows of the text


@cache
def text() -> Tensor:
    """Return the characters of Python's help texts as numbers below CHARACTERS."""
    joined = "".join(topics.topics[name] for name in sorted(topics.topics))
    return torch.tensor([min(byte, CHARACTERS - 1) for byte in joined.encode()])


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread of the processor, so that every process gets the same model."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def fitted(
    scores: Scores,
    model: list[Tensor],
    context: int,
    updates: int,
    source: torch.Generator,
    batch: int = BATCH,
) -> Model:
    """Return the model after updates, each on windows of `context` characters that `source` draws.

    `scores` returns logits (windows, n, CHARACTERS) for the characters after the last n of a window, or
    (windows, CHARACTERS) for the last alone.
    """
    known = text()[:-HELD_OUT]
    optimizer = torch.optim.Adam([part.requires_grad_() for part in model], lr=1e-3)
    for _ in range(updates):
        starts = torch.randint(len(known) - context, (batch, 1), generator=source)
        loss = _loss(scores, tuple(model), known[starts + torch.arange(context + 1)])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return tuple(part.detach() for part in model)


def _loss(scores: Scores, model: Model, windows: Tensor) -> Tensor:
    logits = scores(windows[:, :-1], model)
    after = windows[:, -logits.shape[1] :] if logits.dim() == 3 else windows[:, -1]
    return torch.nn.functional.cross_entropy(logits.flatten(0, -2), after.flatten())


def perplexity(scores: Scores, model: Model, context: int, windows: int = 2000) -> float:
    """Return the model's perplexity on the text on which no model is trained, in evenly spread windows."""
    unseen = text()[-HELD_OUT:]
    starts = torch.linspace(0, len(unseen) - context - 1, windows).long().unsqueeze(1)
    with torch.no_grad():
        return float(_loss(scores, model, unseen[starts + torch.arange(context + 1)]).exp())
