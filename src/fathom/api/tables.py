"""The tables of a sounding: as recorded, as computed from its analysis, and as SQL sees them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from fathom.analysis.results import Examination
    from fathom.sounding import Store

_DERIVED = (
    *("windows", "ledger", "profiled_ledger", "categories", "op_shapes", "collectives"),
    *("ranks", "late_ranks", "jitter", "pipeline", "experts", "request_ledger"),
)


class Tables(ABC):
    """The tables of a sounding in `store`."""

    store: Store

    @abstractmethod
    def examine(self, kind: str | None = None, price: str | None = None) -> Examination:
        """Return the analysis from which tables are computed."""

    @property
    def ledger(self) -> pl.DataFrame:
        """The ledger of the clean step: one row per rank, device, entry and detail.

        - `rank`, `device` (`cuda:0`), `entry` (`compute`, `idle: python` …), `detail` (like a kernel family)
        - `ms`: milliseconds per step, which sum to the step time; `count`: pieces of work per step
        - `inferred`: whether `ms` is the profiled time minus its share of the profiling overhead or, if clean
          steps are longer, a wait that was lengthened, or the unattributed rest
        - `flops`, `bytes`: work per step, from shapes and dtypes; `abstained`: the reason if they are null
        - `flops_per_s`, `bytes_per_s`: achieved rates, of a device in the profiled steps, of a CPU in `ms`
        - `at_ceiling_ms`: milliseconds that the work takes at the measured ceiling; `bound`: that ceiling

        The other columns are those of `LedgerRow`. Without a clean step, as in imported traces, this is
        `profiled_ledger`.
        """
        return _rows(self.examine(), "ledger")

    @property
    def profiled_ledger(self) -> pl.DataFrame:
        """The ledger of the profiled steps, which include profiling overhead; same columns as `ledger`."""
        return _rows(self.examine(), "profiled_ledger")

    @property
    def windows(self) -> pl.DataFrame:
        """The time window of each step: one row per rank, device and step.

        `start_ns` and `end_ns` are nanoseconds since the epoch, and `kind` is the kind of the step. `used` is
        true if the window enters the means; otherwise `why_not` has the reason.
        """
        return _rows(self.examine(), "windows")

    @property
    def collectives(self) -> pl.DataFrame:
        """Communication of the profiled steps: one row per rank, device, operation, size, dtype and group.

        - `rank`, `device` (`cuda:0`), `operation` (`all_reduce` …), `library`, `bytes`, `dtype`, `group`
        - `count`: number per step; `min_ms`, `median_ms`, `max_ms`: milliseconds of one
        - `total_ms`, `overlapped_ms` (while a compute kernel runs), `exposed_ms`: milliseconds per step
        - `waiting_ms`, `moving_ms`: before and since the last peer arrived; null if ranks are missing
        - `algorithm_bytes_per_s`, `bus_bytes_per_s`, `ceiling_bytes_per_s`: bandwidth, and that of the links

        The other columns are those of `Collective`.
        """
        return _rows(self.examine(), "collectives")

    @property
    def categories(self) -> pl.DataFrame:
        """Device work by category: one row per rank, device and category, longest first.

        - `name`: matmul, attention, convolution, norm, elementwise, embedding, optimizer, communication …
        - `ms`, `count`, `flops`: per step, of the same step as `ledger`, whose work they sum to
        """
        return _rows(self.examine(), "categories")

    @property
    def op_shapes(self) -> pl.DataFrame:
        """Ops by input shapes in the profiled steps: one row per rank, device, op, shapes and dtypes.

        - `op`, `shapes`, `dtypes`, `category`; `count`: calls per step; `ms`: device milliseconds per step
        - `min_us`, `median_us`, `max_us`: device time of one call
        - `flops_per_s`, `bytes_per_s`: smallest, median and largest rate of its calls, null if unknown

        The 100 longest rows of each device are kept.
        """
        return _rows(self.examine(), "shapes")

    @property
    def ranks(self) -> pl.DataFrame:
        """The ranks of a job: one row per rank; empty for a single rank.

        - `rank`, `host`, `step_ms`, `compute_ms`, `communication_ms`, `waiting_ms`, `moving_ms`, `copy_ms`,
          `idle_ms`: the profiled step of its first device
        - `last`: collectives that waited for it the longest; `cost_ms`: time per step that its lateness costs
        - `score`: its share of all time lost to late ranks; `lost_in`: the entry in which it lost the time
        - `peak_allocated_bytes`, `peak_reserved_bytes`: of its allocator; null if not recorded
        """
        from fathom.analysis.results import RankSummary

        return _table(self.examine().ranks, RankSummary)

    @property
    def late_ranks(self) -> pl.DataFrame:
        """Ranks that others waited for: one row per rank, costliest first.

        The columns are those of `LateRank`; `operations` is text, like `4 all_to_all`, and so is `entries`,
        like `idle: input 12.1 ms`.
        """
        from msgspec.structs import asdict

        from fathom.analysis.communication import LateRank

        rows = [
            {
                **asdict(rank),
                "operations": ", ".join(f"{count} {name}" for name, count in rank.operations.items()),
                "entries": ", ".join(f"{row.entry} {row.ms:.3g} ms" for row in rank.entries),
            }
            for rank in self.examine().late
        ]
        return _table(rows, LateRank)

    @property
    def jitter(self) -> pl.DataFrame:
        """The spread of each collective over steps: one row per collective of the step, largest first.

        - `operation`, `name` of its kernel, `place` among collectives of that kernel, `n`: steps
        - `total_p50_ms`, `total_p99_ms`, `total_p999_ms`: percentiles of the time since the median rank came
        - `late_…`: until the last rank arrived; `transfer_…`: from then to the end
        """
        from fathom.analysis.communication import Jitter

        return _table(self.examine().jitter, Jitter)

    @property
    def pipeline(self) -> pl.DataFrame:
        """The pipeline that ranks form by sends and receives: one row per stage; empty if they form none.

        - `rank`, `place` (0: the first stage), `compute_ms`, `bubble_ms` and `share` of the step
        - `micro_batches` per step, `schedule`, `expected` share of the bubble with stages of equal length,
          `imbalance`: the longest stage over the mean one; the same in all rows
        """
        import polars as pl
        from msgspec.structs import asdict

        from fathom.analysis.communication import Pipeline, Stage

        names = [*Stage.__struct_fields__, *(n for n in Pipeline.__struct_fields__ if n != "stages")]
        formed = self.examine().pipeline
        if formed is None:
            return pl.DataFrame(schema=names)
        return pl.DataFrame([{**asdict(formed), "stages": None, **asdict(row)} for row in formed.stages])[
            names
        ]

    @property
    def experts(self) -> pl.DataFrame:
        """Tokens of the experts on each rank: `rank`, and `load`, over those of the mean rank.

        It is empty if all-to-alls deliver equal parts.
        """
        from fathom.analysis.communication import ExpertLoad

        return _table(self.examine().experts, ExpertLoad)

    @property
    def request_ledger(self) -> pl.DataFrame:
        """Where each request's time goes: one row per rank, request and entry; empty without requests.

        - `request`: its number in the table `requests`; `entry`: queue, prefill, decode … (`Entry`)
        - `ms`: milliseconds, which sum to the time from its arrival to its last byte
        - `first_ms`: the part until its first token was written, which sum to the time to first token
        """
        import polars as pl

        from fathom.analysis.serving import TABLES, request_ledger

        ledgers = [
            request_ledger({name: self.store.table(name, rank).collect() for name in TABLES}).select(
                pl.lit(rank).alias("rank"), pl.all()
            )
            for rank in self.store.ranks
        ]
        return pl.concat(ledgers)

    def table(self, name: str) -> pl.LazyFrame:
        """Return a recorded table of all ranks, with a `rank` column: `steps`, `ops`, `launches`, `kernels` …

        Times, such as `start_ns`, are nanoseconds since the epoch. `counters` has the counters of each kernel
        family; they are computed here if the recording has only samples. Raises BadInputError for an unknown
        table; the message lists all tables.
        """
        if name != "counters":
            return self.store.table(name)
        from fathom.analysis.folding import counters_table

        return counters_table(self.store).lazy()

    def tables(self) -> pl.DataFrame:
        """Return the tables that `sql` knows: `table`, `rows`, and `columns` separated by commas.

        `rows` is null for tables that are computed when they are named.
        """
        import polars as pl

        from fathom.sounding import TABLES

        frames = {name: self.store.table(name) for name in TABLES}
        counts = [frame.select(pl.len()).collect().item() for frame in frames.values()]
        columns = [", ".join(frame.collect_schema().names()) for frame in frames.values()]
        computed = [", ".join(getattr(_Empty(self.store), name).columns) for name in _DERIVED]
        content = {
            "table": [*frames, *_DERIVED],
            "rows": [*counts, *[None] * len(_DERIVED)],
            "columns": [*columns, *computed],
        }
        return pl.DataFrame(content, schema={"table": pl.String, "rows": pl.Int64, "columns": pl.String})

    def sql(self, query: str, most_rows: int | None = None, most_bytes: int | None = None) -> pl.DataFrame:
        """Run one SELECT over the recorded tables and the computed ones.

        The computed ones are `windows`, `ledger`, `profiled_ledger`, `categories`, `op_shapes`,
        `collectives`, `ranks`, `late_ranks`, `jitter`, `pipeline`, `experts` and `request_ledger`.

        Raises BadInputError for any other statement, for unknown tables and columns, and for a result of more
        than `most_rows` rows or `most_bytes` bytes.
        """
        from fathom.sounding import TABLES, select

        asked = {name for name in (*TABLES, *_DERIVED) if re.search(rf"\b{name}\b", query)}
        frames = {name: self.table(name) for name in TABLES if name in asked}  # reading checks a table
        for name in asked.intersection(_DERIVED):  # computed only if named: analysis takes a while
            frames[name] = getattr(self, name).lazy()
        others = [name for name in (*TABLES, *_DERIVED) if name not in frames]
        return select(frames, query, others, most_rows, most_bytes)


class _Empty(Tables):
    """The computed tables of an analysis without results, which have columns and no rows."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def examine(self, kind: str | None = None, price: str | None = None) -> Any:
        return SimpleNamespace(devices=(), ranks=(), late=(), jitter=(), pipeline=None, experts=())


def _rows(examination: Examination, what: str) -> pl.DataFrame:
    import msgspec
    import polars as pl

    from fathom.analysis.communication import Collective
    from fathom.analysis.results import Category, LedgerRow, OpShape, Window

    rows = [
        {"rank": device.rank, "device": device.device, **msgspec.structs.asdict(row)}
        for device in examination.devices
        for row in getattr(device.communication if what == "collectives" else device, what, ())
    ]
    kinds = {"windows": Window, "collectives": Collective, "categories": Category, "shapes": OpShape}
    kind = kinds.get(what, LedgerRow)
    names = ["rank", "device", *kind.__struct_fields__]
    return pl.DataFrame(rows, infer_schema_length=None) if rows else pl.DataFrame(schema=names)


def _table(rows: Sequence[Any], kind: Any) -> pl.DataFrame:
    """Return structs (or dicts with their fields) as a table with the fields of `kind`."""
    import msgspec
    import polars as pl

    names = list(kind.__struct_fields__)
    plain = [row if isinstance(row, dict) else msgspec.structs.asdict(row) for row in rows]
    return (
        pl.DataFrame(plain, infer_schema_length=None).select(names) if plain else pl.DataFrame(schema=names)
    )
