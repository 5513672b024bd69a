"""Text sampled with drafts has the distribution of the large model alone."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fathom.lab.operations import speculation as lab  # noqa: E402 - it needs torch

DRAWS, LEAST = 1500, 5  # texts, and expected texts of a cell


@pytest.fixture(scope="module")
def given():
    beginning, model, draft, _ = lab.inputs(0, "cpu")
    return beginning, model, draft


def gumbel(draws: int, made: int) -> torch.Tensor:
    uniform = torch.rand(draws, made, lab.CHARACTERS, generator=torch.Generator().manual_seed(1))
    return -(-uniform.clamp(1e-7, 1 - 1e-7).log()).log()


def shares(contexts: torch.Tensor, model: lab.Model) -> torch.Tensor:
    return torch.softmax(lab._scores(contexts, model).double(), dim=-1)


def second(beginning: torch.Tensor, model: lab.Model) -> torch.Tensor:
    """The exact distribution of the second character, over all first ones."""
    first = shares(beginning.unsqueeze(0), model)[0]
    every = torch.arange(lab.CHARACTERS).unsqueeze(1)
    contexts = torch.cat([beginning[1:].expand(lab.CHARACTERS, -1), every], dim=1)
    return first @ shares(contexts, model)


def test_sampled_characters_have_the_models_distribution_by_a_chi_squared_test(given) -> None:
    beginning, model, draft = given
    made = [lab.draft_speculation(beginning, model, draft, noise)[-1] for noise in gumbel(DRAWS, 2)]
    counts = torch.bincount(torch.stack(made), minlength=lab.CHARACTERS).double()
    expected = DRAWS * second(beginning, model)
    large = expected >= LEAST
    seen = torch.cat([counts[large], counts[~large].sum().view(1)])
    wanted = torch.cat([expected[large], expected[~large].sum().view(1)])
    statistic = float(((seen - wanted) ** 2 / wanted).sum())
    freedom = len(wanted) - 1
    # The 99.9th percentile, by the approximation of Wilson and Hilferty (1931)
    limit = freedom * (1 - 2 / (9 * freedom) + 3.09 * (2 / (9 * freedom)) ** 0.5) ** 3
    assert freedom > 10 and statistic < limit
    greedy = DRAWS * torch.nn.functional.one_hot(expected.argmax(), lab.CHARACTERS)
    assert float(((greedy - expected) ** 2 / expected).sum()) > limit  # this would be refused


def test_without_noise_the_answer_is_the_greedy_one(given) -> None:
    beginning, model, draft = given
    noise = torch.zeros(40, lab.CHARACTERS)
    made = lab.draft_speculation(beginning, model, draft, noise).tolist()
    known = beginning.tolist()
    for token in made[len(known) :]:
        context = torch.tensor([known[-lab.CONTEXT :]])
        assert token == int(lab._scores(context, model).argmax())
        known.append(token)
    assert len(made) == len(beginning) + 40


def test_drafts_are_kept_often_enough_to_save_passes(given, monkeypatch: pytest.MonkeyPatch) -> None:
    beginning, model, draft = given
    passes, scores = [], lab._scores
    monkeypatch.setattr(lab, "_scores", lambda *args: passes.append(len(args[0])) or scores(*args))
    lab.draft_speculation(beginning, model, draft, gumbel(1, 90)[0])
    assert len(passes) <= 60 and sum(passes) >= 90  # a pass makes 1.5 characters or more
