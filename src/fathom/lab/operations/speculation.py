"""Sample text from a trained model, with drafts of a smaller one.

    fathom lab run draft-speculation

sampled_tokens reads all weights for every token; draft_speculation verifies drafts of several tokens at once.
Both models are trained here, in seconds, on the documentation that Python brings along, so that drafts are
accepted as often as in real text. The models predict characters.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw
from fathom.lab.characters import CHARACTERS, Model, fitted, one_thread, text

CONTEXT, EACH, HIDDEN = 12, 32, 768  # EACH: width of a character's embedding
UPDATES = 100
MADE, DRAFT = 96, 4
SMOOTH = 0.02  # of a count, for pairs of characters that the text does not continue that way


@cache
def trained() -> tuple[Model, Tensor]:
    """Return a model of the next character, and the draft's log shares after each two characters."""
    with one_thread():
        return _model(), _draft()


def _model() -> Model:
    source = torch.Generator().manual_seed(0)
    sizes = [(CONTEXT * EACH, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, CHARACTERS)]
    model = [torch.randn(CHARACTERS, EACH, generator=source)]
    model += [torch.randn(size, generator=source) * size[0] ** -0.5 for size in sizes]
    return fitted(_scores, model, CONTEXT, UPDATES, source)


def _draft() -> Tensor:
    counts, known = torch.full((CHARACTERS,) * 3, SMOOTH), text()
    counts.index_put_((known[:-2], known[1:-1], known[2:]), torch.ones(len(known) - 2), accumulate=True)
    return counts.div(counts.sum(-1, keepdim=True)).log()


def _scores(windows: Tensor, model: Model) -> Tensor:
    """Return the logits of the character after each window (n, CONTEXT).

    The model is an embedding, hidden layers and a head.
    """
    embedding, *layers, head = model
    rows = embedding[windows].flatten(1)
    for layer in layers:
        rows = F.silu(rows @ layer)
    return rows @ head


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Model, Tensor, Tensor]:
    """Return a beginning from the text, the model, the draft, and the noise of each character to be made.

    The highest sum of a logit and Gumbel noise is a sample of the logits' shares.
    """
    draw, (model, draft) = Draw(seed, device), trained()
    start = int(draw.integers(0, len(text()) - CONTEXT, 1))
    noise = -(-draw.uniform(MADE, CHARACTERS).clamp(1e-7, 1 - 1e-7).log()).log()
    there = tuple(part.to(noise.device) for part in model)
    return text()[start : start + CONTEXT], there, draft, noise


def _sampled(contexts: list[list[int]], model: Model, noise: Tensor) -> list[int]:
    """Return the characters after the contexts; `noise` has a row for each."""
    windows = torch.tensor(contexts, device=noise.device)
    return [int(token) for token in (_scores(windows, model) + noise).argmax(dim=1).tolist()]


def sampled_tokens(beginning: Tensor, model: Model, draft: Tensor, noise: Tensor) -> Tensor:
    made = beginning.tolist()
    for own in noise.split(1):
        made += _sampled([made[-CONTEXT:]], model, own)
    return torch.tensor(made)


def draft_speculation(beginning: Tensor, model: Model, draft: Tensor, noise: Tensor) -> Tensor:
    """title: Verify the drafts of a small model
    pair: {group: framework, plain: sampled_tokens}
    saves: readings of the weights, and steps
    idea: A small model guesses the next tokens, and the large one verifies them in one pass, which reads its
      weights once. With the same random numbers for both, a guess is kept if the large model would have
      drawn the same token, so the answer is the one without drafts, token for token, and its distribution
      is the large model's.
    cost: The draft's own passes, and products for guesses that are refused. Here about half of the guesses
      are kept.
    not_when: The draft agrees too rarely, or batches are so large that products bound the decode.
    shows:
      turns table, tokens generated per turn: one → one more than the accepted draft
    tips: [inference.speculate]
    findings: {serving-low-acceptance: 2}
    proof: {latency: included, cache: warm}"""
    # Leviathan et al., Fast inference from transformers via speculative decoding, ICML 2023
    made, here = beginning.tolist(), noise.cpu()
    end = len(made) + len(noise)
    while len(made) < end:
        first = len(noise) - (end - len(made))
        rows = slice(first, first + DRAFT + 1)
        guess = list(made)
        for own in here[rows][:-1]:
            guess.append(int((draft[guess[-2], guess[-1]] + own).argmax()))
        ends = range(len(made), len(guess) + 1)
        follow = _sampled([guess[at - CONTEXT : at] for at in ends], model, noise[rows])
        guesses = guess[len(made) :]
        good = next((n for n, token in enumerate(guesses) if token != follow[n]), len(guesses))
        made += follow[: good + 1]
    return torch.tensor(made)


def work(beginning: Tensor, model: Model, draft: Tensor, noise: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * len(noise) * sum(part.numel() for part in model[1:]), "unit": "vector.fp32"}
