"""The size of a batch, as a loader delivers it or a model gets it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fathom.probe.hooks.batch import about, size  # noqa: E402


def test_a_vector_is_a_batch_of_a_loader_but_not_of_a_model() -> None:
    vector, images = torch.zeros(9), torch.zeros(4, 3, 8, 8)
    assert size(vector) == (9, None) and size(vector, least=2) == (None, None)
    assert size((vector, images), least=2) == (None, None)
    assert size([images, vector], least=2) == (4, None)
    assert size({"input_ids": torch.zeros(2, 6)}, least=2) == (2, 12)


class Endless(torch.utils.data.IterableDataset):
    def __len__(self) -> int:
        return 12

    def __iter__(self):
        yield from range(99)


class Drawing(torch.utils.data.Sampler):
    """A sampler that does not know how many samples it draws."""

    def __iter__(self):
        yield from range(12)


@pytest.mark.parametrize(
    ("data", "sampler", "batches"),
    [(range(12), None, 3), (Endless(), None, None), (range(12), Drawing(), None)],
)
def test_the_batches_of_an_epoch_are_those_of_a_sampler_with_a_length(data, sampler, batches) -> None:
    loader = torch.utils.data.DataLoader(data, 4, sampler=sampler)
    assert about(0, loader, torch.zeros(4))["batches"] == batches
