"""Fuzz target: a partition directory of which one file was changed is opened, read and written to.

The first byte chooses the file, the second how the rest changes it: as (place, byte) pairs written
over it, as a cut, as its new tail, or as its whole new content. Whatever comes: records that were
there, at their offsets, or a typed error; never a wrong record, never a crash.
"""

from __future__ import annotations

import shutil
import struct
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from replog._native import record_encoder
from replog.config import LogConfig
from replog.errors import ReplogError
from replog.storage.partition_log import PartitionLog
from tests.fuzz import fuzzing

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=2048, index_interval_bytes=256, segment_index_bytes=4096)
RECORDS_PER_BATCH = 5
SHAPES = 4


def now_ms() -> int:
    return NOW


def value_of(offset: int) -> bytes:
    return b"value %d " % offset * 8


def batch_at(offset: int, **fields: int) -> bytes:
    values = [value_of(offset + row) for row in range(RECORDS_PER_BATCH)]
    return bytes(record_encoder.encode(values, now_ms=NOW, **fields))


class Template:
    """The unharmed directory, made once, and a place on which copies of it are harmed."""

    def __init__(self) -> None:
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # no disk to wait for in a sync
        self.home = tempfile.TemporaryDirectory(prefix="replog-fuzz-", dir=memory)
        self.clean = Path(self.home.name) / "clean" / "topic-0"
        self.clean.parent.mkdir()
        with PartitionLog.open(self.clean, CONFIG, now_ms=now_ms) as log:
            for number in range(12):
                fields = {"codec": number % 5}
                if number % 3 == 1:
                    fields |= {
                        "producer_id": 7,
                        "producer_epoch": 0,
                        "base_sequence": number // 3 * 5,
                    }
                log.append_as_leader(batch_at(log.log_end_offset, **fields), number // 4)
        self.files = sorted(
            path.name for path in self.clean.iterdir() if path.is_file() and path.name != ".lock"
        )

    def copy(self) -> Path:
        target = Path(self.home.name) / "harmed" / "topic-0"
        shutil.rmtree(target.parent, ignore_errors=True)
        shutil.copytree(self.clean, target)
        return target


kept: list[Template] = []


def template() -> Template:
    if not kept:
        kept.append(Template())
    return kept[0]


def changed(content: bytes, shape: int, change: bytes) -> bytes:
    if shape == 0:
        mutant = bytearray(content)
        for at, byte in struct.iter_unpack(">HB", change[: len(change) // 3 * 3]):
            if mutant:
                mutant[at % len(mutant)] = byte
        return bytes(mutant)
    if shape == 1:
        return content[: int.from_bytes(change[:2], "big") % (len(content) + 1)]
    if shape == 2:
        return content + change
    return change


def check_records(log: PartitionLog) -> None:
    """Every record that is read is the one that was written at its offset."""
    try:
        expected = log.log_start_offset
        for record in log:
            assert record.offset >= expected, (record.offset, expected)
            assert record.value == value_of(record.offset), record
            expected = record.offset + 1
    except ReplogError:
        pass


def open_and_use(path: Path) -> None:
    with PartitionLog.open(path, CONFIG, now_ms=now_ms) as log:
        check_records(log)
        try:
            log.offset_for_timestamp(NOW)
            log.end_offset_for_epoch(1)
            log.append_as_leader(batch_at(log.log_end_offset), max(log.latest_epoch, 0))
            log.append_as_leader(batch_at(log.log_end_offset), max(log.latest_epoch, 0))
        except ReplogError:
            return
        check_records(log)


def one_input(content: bytes) -> None:
    if len(content) < 2:
        return
    files = template().files
    path = template().copy()
    harmed = path / files[content[0] % len(files)]
    harmed.write_bytes(changed(harmed.read_bytes(), content[1] % SHAPES, content[2:]))
    for _ in range(2):
        try:
            open_and_use(path)
        except ReplogError:
            continue


def seeds() -> Iterator[bytes]:
    for number, name in enumerate(template().files):
        content = (template().clean / name).read_bytes()
        yield bytes([number, 0]) + struct.pack(">HB", len(content) // 2, 0x55)
        yield bytes([number, 1]) + struct.pack(">H", len(content) // 2)
        yield bytes([number, 2]) + content[:100]
        yield bytes([number, 3]) + content[: 1 << 12]


if __name__ == "__main__":
    fuzzing.main(one_input, seeds())
