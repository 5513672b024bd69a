"""Lanes: candidates side by side. Each lane has its own GPUs, and runs the baseline there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from fathom.errors import BadInputError
from fathom.tuner.pairing import BETWEEN, Outcome, Paired, Trial

GPU = re.compile(r"\d+|(GPU|MIG)-[\w/-]+")


def lanes_of(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the lanes that `--gpus` gives, like 0 and 1, or 0,1 and 2,3. Raises BadInputError."""
    lanes = [[word.strip() for word in text.split(",")] for text in texts]
    for word in (word for lane in lanes for word in lane):
        if not GPU.fullmatch(word):
            raise BadInputError(f"--gpus takes numbers or UUIDs of GPUs, like 0 or 0,1, not '{word}'.")
    word, count = next(iter(Counter(word for lane in lanes for word in lane).most_common(1)), ("", 0))
    if count > 1:
        raise BadInputError(f"GPU {word} is given {count} times with --gpus; give each lane other GPUs.")
    if len({len(lane) for lane in lanes}) > 1:
        raise BadInputError("The lanes of --gpus have different numbers of GPUs; give each as many.")
    return tuple(",".join(lane) for lane in lanes)


class Lanes:
    """Measures candidates side by side. The first lane also judges the results of the others."""

    def __init__(self, lanes: Sequence[Paired]) -> None:
        self.lanes = list(lanes)

    @property
    def width(self) -> int:
        """The number of candidates that run between two runs of the baseline, over all lanes."""
        return BETWEEN * len(self.lanes)

    def measure(self, trials: Sequence[Trial], seen: Callable[[], None] = lambda: None) -> list[Outcome]:
        """Run the trials, at most `width`, in the lanes.

        A lane's ratios are to its own baseline, because lanes differ in their GPUs and slow each other down.
        """
        return list(self._measured(trials, seen))

    def _measured(self, trials: Sequence[Trial], seen: Callable[[], None]) -> Iterator[Outcome]:
        with ThreadPoolExecutor(len(self.lanes)) as pool:
            batches = [trials[first : first + BETWEEN] for first in range(0, len(trials), BETWEEN)]
            parts = zip(self.lanes, batches, strict=False)
            running = [pool.submit(lane.timed, part, seen) for lane, part in parts]
            try:
                timed = [future.result() for future in running]
            except BaseException:  # an interrupt too: the threads would wait for their programs
                for lane in self.lanes:
                    lane.runner.cancel()
                raise
        yield from (self.lanes[0].outcome(each) for of_lane in timed for each in of_lane)
