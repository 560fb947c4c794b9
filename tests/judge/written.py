"""Directories that replog writes for Kafka to judge: one function a kind, in `KINDS`.

Each is given a Log to write to; the `LogConfig` options that it needs stand beside it.
Record timestamps lie in the last hours, since Kafka forgets producers that are a day old.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from replog._native import record_encoder
from replog.config import LogConfig
from replog.storage.partition_log import PartitionLog
from replog.types import Codec

NOW_MS = int(time.time() * 1000) - 3_600_000
ABORT, COMMIT = 0, 1
SMALL = LogConfig(segment_bytes=6000, index_interval_bytes=300)
BIG_VALUE_BYTES = 150_000


@dataclasses.dataclass(frozen=True)
class Kind:
    """How one directory comes about. `topic` is its configuration in Kafka's words."""

    write: Callable[[PartitionLog, Path], None]
    config: LogConfig = dataclasses.field(default_factory=LogConfig)
    reopened: Callable[[PartitionLog, Path], None] | None = None

    def make(self, path: Path) -> None:
        """Write the directory NAME-0 at `path` and close it; a crash goes between where told."""
        with PartitionLog.open(str(path), self.config) as log:
            self.write(log, path)
        if self.reopened:
            with PartitionLog.open(str(path), self.config) as log:
                self.reopened(log, path)

    def topic_config(self) -> dict[str, str]:
        """The options that a broker must know, under Kafka's names."""
        return {
            "internal.segment.bytes": str(self.config.segment_bytes),
            "index.interval.bytes": str(self.config.index_interval_bytes),
            "message.timestamp.type": self.config.message_timestamp_type,
            "compression.type": self.config.compression_type,
        }


def columns(random_: random.Random, count: int, start_ms: int) -> tuple[list, list, list, list]:
    """Values, keys, timestamps and headers with every oddity that the format allows."""
    words = [b"alpha", b"beta", b"gamma", b"delta", "λόγος".encode(), b"\x00\xff"]
    pool = [("h", b"x"), ("h", b"again"), ("null", None), ("", b"empty name"), ("ключ", b"")]
    values, keys, stamps, headers = [], [], [], []
    for number in range(count):
        text = b" ".join(random_.choices(words, k=random_.randint(1, 30)))
        values.append(random_.choice([text, text, text, None, b"", random_.randbytes(90)]))
        keys.append(random_.choice([None, b"", random_.choice(words), random_.randbytes(8)]))
        stamps.append(start_ms + number * 7 - random_.choice([0, 0, 0, 500]))
        headers.append(random_.choices(pool, k=random_.choice([0, 0, 1, 3])))
    return values, keys, stamps, headers


def fill(
    log: PartitionLog, sizes: list[int], *, codec: Codec = Codec.NONE, leader_epoch: int = 0
) -> None:
    """Append a batch of each size."""
    random_ = random.Random(f"{log.topic_partition}/{log.log_end_offset}")
    for size in sizes:
        start_ms = NOW_MS + log.log_end_offset * 100
        log.append(*columns(random_, size, start_ms), codec=codec, leader_epoch=leader_epoch)


def of_codec(codec: Codec) -> Callable[[PartitionLog, Path], None]:
    def write(log: PartitionLog, path: Path) -> None:
        fill(log, [1, 2, 40, 7, 300], codec=codec)
        random_ = random.Random(codec)
        big = [random_.randbytes(BIG_VALUE_BYTES), b"text " * (BIG_VALUE_BYTES // 5), b"", None]
        log.append(big, timestamps=NOW_MS, codec=codec)
        fill(log, [1, 15], codec=codec)

    return write


def several_epochs(log: PartitionLog, path: Path) -> None:
    for leader_epoch in (0, 1):
        fill(log, [random.Random(leader_epoch).randint(1, 9)] * 12, leader_epoch=leader_epoch)
        fill(log, [30, 3], codec=Codec.LZ4, leader_epoch=leader_epoch)


def many_epochs(log: PartitionLog, path: Path) -> None:
    for leader_epoch in (0, 3, 4, 17, 200):
        log.assign_epoch(leader_epoch, log.log_end_offset)
        fill(log, [5, 8, 2], leader_epoch=leader_epoch)


def truncated(log: PartitionLog, path: Path) -> None:
    several_epochs(log, path)
    log.truncate_to(log.log_end_offset * 2 // 3)
    fill(log, [4, 4, 12], codec=Codec.ZSTD, leader_epoch=1)


def truncated_fully(log: PartitionLog, path: Path) -> None:
    fill(log, [9] * 10)
    log.truncate_fully_and_start_at(5000)
    fill(log, [9] * 10, leader_epoch=1)


def without_prefix(log: PartitionLog, path: Path) -> None:
    several_epochs(log, path)
    log.high_watermark = log.log_end_offset
    log.truncate_prefix_to(log.log_end_offset // 2 + 1)
    log.apply_retention()


def retained_by_size(log: PartitionLog, path: Path) -> None:
    several_epochs(log, path)
    log.high_watermark = log.log_end_offset
    log.apply_retention()


def torn(log: PartitionLog, path: Path) -> None:
    several_epochs(log, path)
    log.close(flush=False)
    active = max(path.glob("*.log"))
    with active.open("ab") as file:
        file.write(random.Random(9).randbytes(700))
    (path / ".kafka_cleanshutdown").unlink(missing_ok=True)


def refilled(log: PartitionLog, path: Path) -> None:
    fill(log, [3, 20, 1], codec=Codec.GZIP, leader_epoch=1)


def idempotent(log: PartitionLog, path: Path) -> None:
    sequences = {11: 0, 12: 2**31 - 9, 4_000_000_011: 0}
    random_ = random.Random(4)
    for number in range(40):
        producer_id = random_.choice(sorted(sequences))
        count = random_.randint(1, 9)
        batch = producer_batch(random_, log, count, producer_id, sequences[producer_id])
        log.append_as_leader(batch, number // 30)
        sequences[producer_id] = (sequences[producer_id] + count) % 2**31


def producer_batch(
    random_: random.Random,
    log: PartitionLog,
    count: int,
    producer_id: int,
    base_sequence: int,
    *,
    transactional: bool = False,
) -> bytes:
    return record_encoder.encode(
        *columns(random_, count, NOW_MS + log.log_end_offset * 100),
        now_ms=NOW_MS,
        codec=random_.choice(list(Codec)),
        producer_id=producer_id,
        producer_epoch=2,
        base_sequence=base_sequence,
        transactional=transactional,
    )


def transactions(log: PartitionLog, path: Path) -> None:
    """Interleaved, committed and aborted, one left open; markers as replication brings them."""
    random_ = random.Random(8)
    sequences = dict.fromkeys((21, 22, 23), 0)
    for number in range(12):
        for producer_id in random_.sample(sorted(sequences), 2):
            for count in (3, 2):
                first = sequences[producer_id]
                batch = producer_batch(random_, log, count, producer_id, first, transactional=True)
                log.append_as_leader(batch, 0)
                sequences[producer_id] += count
            if number < 11 or producer_id != min(sequences):
                log.append_as_follower(marker(log, producer_id, random_.choice([ABORT, COMMIT])))
        fill(log, [2])


def marker(log: PartitionLog, producer_id: int, control_type: int) -> bytes:
    return record_encoder.encode_control(
        control_type,
        producer_id=producer_id,
        producer_epoch=2,
        coordinator_epoch=5,
        timestamp=NOW_MS + log.log_end_offset * 100,
        base_offset=log.log_end_offset,
        leader_epoch=0,
    )


def replicated(log: PartitionLog, path: Path) -> None:
    """A follower of another log, several batches at a time and cut in the middle of one."""
    with PartitionLog.open(str(path.parent / "leader" / path.name), SMALL) as leader:
        several_epochs(leader, path)
        while log.log_end_offset < leader.log_end_offset:
            log.append_as_follower(leader.read(log.log_end_offset, 1500))


def replicated_with_gaps(log: PartitionLog, path: Path) -> None:
    """Offsets with holes, as a compacted leader has them."""
    random_ = random.Random(3)
    for base_offset in (0, 10, 500, 501, 90_000):
        log.append_as_follower(
            record_encoder.encode(
                *columns(random_, 1, NOW_MS), now_ms=NOW_MS, base_offset=base_offset, leader_epoch=0
            )
        )


def kinds() -> Iterator[tuple[str, Kind]]:
    for codec in Codec:
        yield f"codec-{codec.name.lower()}", Kind(of_codec(codec))
    yield (
        "append-time",
        Kind(of_codec(Codec.ZSTD), LogConfig(message_timestamp_type="LogAppendTime")),
    )
    yield "recoded", Kind(of_codec(Codec.NONE), LogConfig(compression_type="lz4"))
    yield "several-epochs", Kind(several_epochs, SMALL)
    yield "many-epochs", Kind(many_epochs, SMALL)
    yield "truncated", Kind(truncated, SMALL)
    yield "truncated-fully", Kind(truncated_fully, SMALL)
    yield "without-prefix", Kind(without_prefix, SMALL)
    yield (
        "retained-by-size",
        Kind(retained_by_size, dataclasses.replace(SMALL, retention_bytes=9000)),
    )
    yield "recovered", Kind(torn, SMALL, refilled)
    yield "idempotent", Kind(idempotent, SMALL)
    yield "transactions", Kind(transactions, SMALL)
    yield "replicated", Kind(replicated, SMALL)
    yield "replicated-with-gaps", Kind(replicated_with_gaps, LogConfig(cleanup_policy="compact"))


KINDS = dict(kinds())
