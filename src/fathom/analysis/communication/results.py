"""The result types of communication, part of the contract of `fathom report --json`."""

from __future__ import annotations

import msgspec


class Collective(msgspec.Struct):
    """Collectives of one operation, size, dtype and group. Times of all are per step.

    `total_ms`, `overlapped_ms` and `exposed_ms` count time once, even if several of these collectives run.
    Bandwidths are those of the median collective, and since the last peer arrived if that is known.
    """

    operation: str  # all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_recv, dispatch, ...
    library: str  # NCCL, RCCL, DeepEP, NVSHMEM, symmetric memory, custom all-reduce, ...
    count: float  # number per step
    min_ms: float  # of one collective, with waiting for peers
    median_ms: float
    max_ms: float
    total_ms: float
    overlapped_ms: float  # while a compute kernel runs
    exposed_ms: float  # while none runs
    overlap: float  # overlapped_ms / total_ms
    bytes: float | None = None  # size as in NCCL's tests: the larger buffer of one rank
    dtype: str | None = None  # of the elements: fp32, bf16, ...
    group: str = ""  # name of the process group
    ranks: int | None = None  # in the group
    waiting_ms: float | None = None  # before the last peer arrived; null if the peers were not recorded
    moving_ms: float | None = None  # since then
    algorithm_bytes_per_s: float | None = None  # bytes / time
    bus_bytes_per_s: float | None = None  # of each link: algorithm bandwidth times NCCL's factor
    ceiling_bytes_per_s: float | None = None  # bus bandwidth of the links at this size
    ceiling: str = ""  # source of the ceiling: "measured at 4 MiB", "datasheet"
    abstained: str = ""  # the reason why bytes or bandwidth are null
    families: list[str] = []  # of its kernels


class Communication(msgspec.Struct):
    """Communication of one device per step; concurrent collectives count once in the total."""

    total_ms: float
    overlapped_ms: float  # while a compute kernel runs
    exposed_ms: float
    overlap: float  # overlapped_ms / total_ms
    compute_ms: float  # time with a compute kernel
    compute_overlap: float  # overlapped_ms / compute_ms
    collectives: list[Collective]  # longest exposed time first
    slowed_ms: float = 0.0  # by which compute kernels take longer beside collectives than alone


class LateRank(msgspec.Struct):
    """How often a rank is the last to arrive at collectives, and what that costs the job."""

    rank: int
    last: int  # collectives that waited for this rank the longest
    of: int  # collectives of which the arrivals of all ranks are known
    operations: dict[str, int]  # of those it was last at, by operation
    behind_ms: float  # median lateness where it is last, behind the median rank
    cost_ms: float  # per step: time from the second-last arrival to this rank's, at most what it loses
    score: float  # share of the time that all late ranks cost, before that limit
    steps: int = 0  # in which the others waited for this rank the longest
    of_steps: int = 0  # in which any rank was waited for
    host: str | None = None
    entries: list[LostTime] = []  # where it spends more time than the median rank, largest first


class LostTime(msgspec.Struct):
    """Time that a late rank spends in an entry of the profiled ledger beyond the median rank."""

    entry: str
    ms: float  # per step


class Jitter(msgspec.Struct):
    """The spread of one collective over steps, in ms since the median rank arrived.

    `late` is the time until the last rank arrived, `transfer` the time from then to the end. With fewer
    steps than a percentile can resolve, it is close to the largest value.
    """

    operation: str
    place: int  # its position in the step among collectives of its kernel, from 0
    n: int  # steps
    total_p50_ms: float
    total_p99_ms: float
    total_p999_ms: float
    late_p50_ms: float
    late_p99_ms: float
    late_p999_ms: float
    transfer_p50_ms: float
    transfer_p99_ms: float
    transfer_p999_ms: float
    name: str = ""  # of its kernel


class Stage(msgspec.Struct):
    """One stage of a pipeline, per step."""

    rank: int
    place: int  # 0: the first stage
    compute_ms: float
    bubble_ms: float  # without a compute kernel
    share: float  # bubble_ms over the step


class Pipeline(msgspec.Struct):
    """The pipeline that the ranks form by sends and receives."""

    stages: list[Stage]
    micro_batches: int  # per step
    schedule: str
    expected: float  # bubble over step with stages of equal length: (p - 1) / (m + p - 1)
    imbalance: float  # compute time of the longest stage over that of the mean one


class ExpertLoad(msgspec.Struct):
    """The tokens that the experts of a rank get, over those of the mean rank."""

    rank: int
    load: float


class PlacedGroup(msgspec.Struct):
    """A process group, with its place among the hosts and what it moves per step."""

    name: str
    ranks: list[int]
    hosts: int  # that it spans
    bytes: float
    exposed_ms: float
    bus_bytes_per_s: float  # of its fastest collective; 0 if unknown
