"""A token that makes a read repeatable: where each partition was cut, and what stood there.

    {"replog_snapshot":1,"partitions":{"orders-0":{"start":0,"end":120,"epoch":3,"crc":9,...}}}

`epoch` and `crc` are those of the last batch below `end`: while they are the same, so is what lies
before, except for what compaction removes; `cleaned`, how far the cleaner has been, tells that.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from replog.errors import LogTruncatedError, OffsetOutOfRangeError, UsageError
from replog.reader import PartitionReader
from replog.types import TopicPartition

VERSION = 1
_FIELDS = ("start", "end", "epoch", "crc", "cleaned")


class PartitionCut(NamedTuple):
    """Offsets [start_offset, end_offset) of a partition and what shows that they are unchanged.

    leader_epoch, crc: of the last batch below the end, None if there is none. cleaned_offset: how
    far compaction had been, None if it never was.
    """

    start_offset: int
    end_offset: int
    leader_epoch: int | None
    crc: int | None
    cleaned_offset: int | None

    @classmethod
    def of(cls, reader: PartitionReader, start_offset: int, end_offset: int) -> PartitionCut:
        """The cut as it is now. Raises CorruptBatchError, LogTruncatedError."""
        last = reader.last_batch_below(end_offset)
        epoch, crc = (None, None) if last is None else (last.leader_epoch, last.crc)
        return cls(start_offset, end_offset, epoch, crc, reader.cleaned_offset)

    def check(self, key: TopicPartition, reader: PartitionReader) -> None:
        """Raises OffsetOutOfRangeError, LogTruncatedError unless its rows are what they were."""
        if self.start_offset < reader.log_start_offset:
            raise OffsetOutOfRangeError(
                f"expected the records of {key} from offset {self.start_offset} on, as the "
                f"snapshot says, found that the log starts at {reader.log_start_offset} by now; "
                f"take a new snapshot",
                offset=self.start_offset,
                topic_partition=str(key),
                path=reader.path,
            )
        if self.end_offset > reader.end_offset:
            _changed(
                key,
                reader,
                f"records committed up to offset {self.end_offset}",
                f"the high watermark at {reader.end_offset}",
            )
        now = self.of(reader, self.start_offset, self.end_offset)
        if (now.leader_epoch, now.crc) != (self.leader_epoch, self.crc):
            _changed(
                key,
                reader,
                f"leader epoch {self.leader_epoch} and CRC {self.crc} below offset "
                f"{self.end_offset}",
                f"{now.leader_epoch} and {now.crc}",
            )
        if now.cleaned_offset != self.cleaned_offset and (
            (now.cleaned_offset or 0) > self.start_offset
        ):
            _changed(
                key,
                reader,
                f"a log compacted up to {self.cleaned_offset}",
                f"one compacted up to {now.cleaned_offset}",
            )


def _changed(key: TopicPartition, reader: PartitionReader, expected: str, found: str) -> NoReturn:
    raise LogTruncatedError(
        f"expected {expected} in {key}, as the snapshot says, found {found} in {reader.path}: this "
        f"is not the log that the snapshot was taken of, or it was changed since; take a new one",
        path=reader.path,
        topic_partition=str(key),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """A cut of every partition of a read; `str` is the token."""

    cuts: Mapping[TopicPartition, PartitionCut]

    def __str__(self) -> str:
        partitions = {
            str(key): dict(zip(_FIELDS, cut, strict=True)) for key, cut in sorted(self.cuts.items())
        }
        token = {"replog_snapshot": VERSION, "partitions": partitions}
        return json.dumps(token, separators=(",", ":"))

    @classmethod
    def parse(cls, token: str) -> Snapshot:
        """What `str` made. Raises UsageError."""
        try:
            parsed = json.loads(token)
            if parsed["replog_snapshot"] != VERSION:
                raise ValueError("another version")  # noqa: TRY301 - one refusal for all
            return cls(
                {
                    TopicPartition.parse(name): PartitionCut(*(cut[field] for field in _FIELDS))
                    for name, cut in parsed["partitions"].items()
                }
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"expected a snapshot as spark_integration.snapshot gives it (version {VERSION}), "
                f"found {token[:80]!r}"
            ) from error

    def restrict(
        self, readers: Mapping[TopicPartition, PartitionReader], *, selected: bool
    ) -> dict[TopicPartition, PartitionReader]:
        """Those of the readers that the snapshot has. Raises UsageError if one of its is missing.

        selected: whether the user picked partitions, so that the others are missing on purpose.
        """
        missing = self.cuts.keys() - readers.keys()
        if missing and not selected:
            raise UsageError(
                f"expected every partition of the snapshot under the paths given, found no "
                f"{min(missing)}; give the directories that it was taken of"
            )
        return {key: readers[key] for key in sorted(self.cuts.keys() & readers.keys())}
