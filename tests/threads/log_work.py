"""Threads in one `PartitionLog`: every public method, in rounds, a check after each."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable
from pathlib import Path

from replog import errors
from replog._native import record_encoder
from replog.config import LogConfig
from replog.reader import PartitionReader
from replog.storage.partition_log import PartitionLog
from replog.types import Isolation
from tests.shake.records import Tag, tag_of, value_of
from tests.threads.log_model import Contents, Model
from tests.threads.workers import Round, Worker, expect

NOW_MS = 1_700_000_000_000
COMMIT, ABORT = 1, 0
TOLERATED = (
    errors.OffsetError,
    errors.LogTruncatedError,
    errors.OutOfDescriptorsError,
    errors.ProducerError,
    errors.FencedLeaderEpochError,
)
"""Offsets that are gone by now; sequences that a cut took; no descriptors; an epoch that another
thread has raised meanwhile."""


class Producer:
    """The batches of one idempotent producer, in its order."""

    def __init__(self, producer_id: int) -> None:
        self.begin_anew(producer_id)

    def begin_anew(self, producer_id: int) -> None:
        self._id, self._sequences = producer_id, itertools.count()

    def batch(self, values: list[bytes], *, transactional: bool = False) -> bytes:
        return record_encoder.encode(
            values,
            now_ms=NOW_MS,
            producer_id=self._id,
            producer_epoch=0,
            base_sequence=next(self._sequences),
            transactional=transactional,
        )

    def marker(self, kind: int) -> bytes:
        return record_encoder.encode_control(
            kind, producer_id=self._id, producer_epoch=0, coordinator_epoch=0, timestamp=NOW_MS
        )


def draw_config(chance: random.Random) -> LogConfig:
    retains = chance.random() < 0.3
    return LogConfig(
        segment_bytes=chance.choice((4096, 16_384, 1 << 20)),
        max_message_bytes=4096,
        index_interval_bytes=chance.choice((64, 300, 4096)),
        retention_bytes=20_000 if retains else -1,
        file_delete_delay_ms=chance.choice((0, 0, 50)),
        flush_mode=chance.choice(("os", "os", "commit", "interval")),
        compression_type=chance.choice(("producer", "producer", "lz4", "zstd")),
    )


class LogWork:
    """One log, for a number of rounds."""

    def __init__(self, seed: int, directory: Path) -> None:
        self._chance = random.Random(seed)
        self._seed = seed
        self._path = directory / "topic-0"
        self._config = draw_config(self._chance)
        self._log = self._open()
        self._sends = itertools.count()
        self._producers = itertools.count(1)
        self._epoch = 0
        self._held: Contents = {}
        self.calls = 0
        self.refusals: dict[str, int] = {}

    def _open(self) -> PartitionLog:
        return PartitionLog.open(self._path, self._config)

    def roles(self) -> dict[str, Callable[[Worker], None]]:
        return {
            "append": self.append,
            "append much": self.append_much,
            "produce": self.produce(),
            "transact": self.transact(),
            "read": self.read,
            "look": self.look,
            "read offline": self.read_offline,
            "flush": self.flush,
            "commit": self.commit,
            "checkpoint": self.checkpoint,
            "roll": self.roll,
            "epochs": self.epochs,
            "cut": self.cut,
            "front": self.front,
            "retain": self.retain,
            "restart": self.restart,
        }

    def round(self, seconds: float) -> None:
        """Some roles for a while, then what must hold; the log may be opened again for the next."""
        roles = self.roles()
        names = ["append", *self._chance.sample(sorted(roles), self._chance.randrange(3, 7))]
        closing = self._chance.random() < 0.15
        if closing:
            roles["close"] = self.close
            names.append("close")
        tolerated = (*TOLERATED, errors.LogClosedError) if closing else TOLERATED
        played = Round(self._chance, tolerated)
        for name in names:
            played.add(roles[name])
        extent = (self._log.log_start_offset, self._log.log_end_offset)
        acts = played.play(seconds)
        self.calls += len(acts)
        for name, count in played.refusals.items():
            self.refusals[name] = self.refusals.get(name, 0) + count
        if closing:
            self._log.close()
            self._log = self._open()
        model = Model(self._held, *extent, acts, closing)
        self._held = self._contents()
        model.check(self._held, self._log.log_start_offset, self._log.log_end_offset)
        self._check_files()
        if self._chance.random() < 0.3:
            self._reopen()

    def _contents(self) -> Contents:
        found: Contents = {}
        for record in self._log.records(isolation=Isolation.LOG_END):
            tag = tag_of(record.value)
            expect(tag is not None and tag.seed == self._seed, f"no record of ours: {record}")
            assert tag is not None
            expect(record.offset not in found, f"offset {record.offset} is there twice")
            found[record.offset] = tag
        return found

    def _check_files(self) -> None:
        """Where all stand still: a flush has told the truth, indexes are whole and in order."""
        log = self._log
        expect(not log.failed, "the log failed without a failing disk")
        synced, end = log.synced_end_offset, log.log_end_offset
        expect(synced <= end, f"synced to {synced} of a log that ends at {end}")
        flushed = log.flush()
        expect(flushed == log.recovery_point == end, f"flushed to {flushed}, not to {end}")
        for segment in log.segments:
            expect(segment.offset_index.check(whole=True), f"index of {segment.path}")
            expect(segment.time_index.check(whole=True), f"time index of {segment.path}")
        starts = [start for _, start in log.epochs]
        expect(starts == sorted(set(starts)), f"epochs {log.epochs}")

    def _reopen(self) -> None:
        """As after a clean close, or as after a kill: the kernel has everything either way."""
        self._log.close(flush=self._chance.random() < 0.5)
        self._log = self._open()
        found = self._contents()
        expect(found == self._held, "opened again, the log holds something else")

    def end(self) -> None:
        self._log.close()
        self._log = self._open()
        expect(self._contents() == self._held, "opened again, the log holds something else")
        self._log.close()

    # What threads do.

    def _values(self, count: int) -> tuple[int, list[bytes]]:
        send = next(self._sends)
        return send, [value_of(Tag(self._seed, send, place)) for place in range(count)]

    def append(self, worker: Worker) -> None:
        count = worker.chance.choice((1, 1, 2, 10))
        send, values = self._values(count)
        worker.act("append", lambda: self._log.append(values), send, count)

    def append_much(self, worker: Worker) -> None:
        """More than a batch may hold, and more than a segment."""
        count = worker.chance.choice((40, 100))
        send, values = self._values(count)
        worker.act("append", lambda: self._log.append(values), send, count)

    def _epoch_now(self) -> int:
        return max(self._log.latest_epoch, self._log.written_epoch, 0)

    def produce(self) -> Callable[[Worker], None]:
        """An idempotent producer, which repeats some of its batches."""
        producer = Producer(next(self._producers))

        def produced(worker: Worker) -> None:
            send, values = self._values(1)
            batch, log = producer.batch(values), self._log
            try:
                first = worker.act(
                    "append", lambda: log.append_as_leader(batch, self._epoch_now()), send, 1
                )
                if worker.chance.random() < 0.3:
                    again = worker.act(
                        "repeat", lambda: log.append_as_leader(batch, self._epoch_now()), send, 1
                    )
                    same = again.base_offset == first.base_offset
                    expect(same or not again.duplicate, "a repeat was answered another offset")
            except errors.ProducerError:  # a cut took what came before
                producer.begin_anew(next(self._producers))
                raise

        return produced

    def transact(self) -> Callable[[Worker], None]:
        producer = Producer(next(self._producers))

        def transacted(worker: Worker) -> None:
            log = self._log
            try:
                for _ in range(worker.chance.randrange(1, 4)):
                    send, values = self._values(1)
                    batch = producer.batch(values, transactional=True)
                    append = functools.partial(log.append_as_leader, batch, self._epoch_now())
                    worker.act("append", append, send, 1)
                marker = producer.marker(worker.chance.choice((COMMIT, ABORT)))
                append = functools.partial(log.append_as_leader, marker, coordinator=True)
                worker.act("marker", lambda: append(self._epoch_now()))
            except errors.ProducerError:
                producer.begin_anew(next(self._producers))
                raise

        return transacted

    def read(self, worker: Worker) -> None:
        log = self._log
        start = log.log_start_offset
        start = worker.chance.randint(start, max(start, log.log_end_offset) + 1)
        kind = worker.chance.randrange(3)
        if kind == 0:
            rows = worker.act("arrow", lambda: log.to_arrow(start, start + 300))
            pairs = zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True)
        elif kind == 1:
            piece = worker.act("slice", lambda: log.read(start, 4000))
            pairs = [(record[0], record[5]) for record in piece.records()]
        else:
            level = worker.chance.choice((Isolation.LOG_END, Isolation.HIGH_WATERMARK))
            taken = itertools.islice(log.records(start, isolation=level), 200)
            pairs = [(record.offset, record.value) for record in taken]
        seen = [(offset, tag_of(value)) for offset, value in pairs]
        expect([offset for offset, _ in seen] == sorted({offset for offset, _ in seen}), "order")
        worker.act("read", lambda: seen)

    def look(self, worker: Worker) -> None:
        log = self._log
        calls: list[Callable[[], object]] = [
            lambda: log.offset_for_timestamp(NOW_MS),
            log.offset_of_max_timestamp,
            lambda: log.end_offset_for_epoch(worker.chance.randrange(3)),
            lambda: log.epoch_for_offset(max(0, log.log_end_offset - 1)),
            lambda: log.aborted_transactions(log.log_start_offset, log.log_end_offset),
            lambda: (log.epochs, log.producer_entries, log.latest_epoch, log.written_epoch),
            lambda: (log.size_bytes, log.segments[-1].base_offset, repr(log)),
            lambda: (log.last_stable_offset, log.high_watermark, log.recovery_point),
            lambda: log.to_arrow(isolation=Isolation.TXN_COMMITTED).num_rows,
            lambda: [segment.offset_index.entry_count for segment in log.segments],
        ]
        worker.act("look", worker.chance.choice(calls))

    def read_offline(self, worker: Worker) -> None:
        """As another process does it, beside the writer."""

        def seen() -> list[tuple[int, Tag | None]]:
            rows = PartitionReader(self._path).to_arrow()
            pairs = zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True)
            return [(offset, tag_of(value)) for offset, value in pairs]

        worker.act("read", seen)

    def flush(self, worker: Worker) -> None:
        worker.act("flush", self._log.flush)

    def commit(self, worker: Worker) -> None:
        end = self._log.log_end_offset
        worker.act("commit", lambda: self._log.commit(end))

    def checkpoint(self, worker: Worker) -> None:
        worker.act("checkpoint", self._log.checkpoint)

    def roll(self, worker: Worker) -> None:
        worker.act("roll", self._log.roll)

    def epochs(self, worker: Worker) -> None:
        self._epoch += 1
        epoch, log = self._epoch, self._log
        worker.act("epoch", lambda: log.assign_epoch(epoch, log.log_end_offset))

    def cut(self, worker: Worker) -> None:
        log = self._log
        end = log.log_end_offset
        low = max(log.log_start_offset, end - 60)
        offset = worker.chance.randint(low, max(low, end))
        worker.act("cut", lambda: log.truncate_to(offset), offset)

    def front(self, worker: Worker) -> None:
        log = self._log
        offset = log.log_start_offset + worker.chance.randrange(20)
        worker.act("front", lambda: log.truncate_prefix_to(offset), offset)

    def retain(self, worker: Worker) -> None:
        worker.act("retain", self._log.apply_retention)
        worker.act("unlink", self._log.unlink_retired)

    def restart(self, worker: Worker) -> None:
        if worker.chance.random() < 0.05:
            offset = worker.chance.randrange(1000)
            worker.act("restart", lambda: self._log.truncate_fully_and_start_at(offset))
        else:
            self.look(worker)

    def close(self, worker: Worker) -> None:
        if worker.chance.random() < 0.02:
            worker.act("close", self._log.close)
        else:
            self.look(worker)
