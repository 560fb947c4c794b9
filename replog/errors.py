"""Every error that replog raises, by who can do something about it.

`ReplogError` is the root of the expected ones: a caller branches on the type or on `retriable`,
never on the text. Each carries its facts as attributes (`path`, `position`, `offset`, ...), and its
message is one sentence: what was expected, what was found, where, and what to do.
`InvariantViolation` stands outside: it is a bug in replog, and nothing below the runtime catches
it.
"""

from __future__ import annotations

import errno
import reprlib
from typing import Any, ClassVar

LONG_INTEGER_BITS = 256

# Elements of a list or dict are cut, too; a __repr__ that raises is told as such.
_SHORT = reprlib.Repr()
_SHORT.maxlevel = 2
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


class ReplogError(Exception):
    """Root of the operating errors. Facts given by keyword become attributes."""

    retriable: ClassVar[bool] = False

    path: str | None = None
    position: int | None = None
    offset: int | None = None
    leader_epoch: int | None = None
    topic_partition: str | None = None

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts
        for name, fact in facts.items():
            setattr(self, name, fact)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), str(self), self.facts))


def _rebuild(kind: type[ReplogError], message: str, facts: dict[str, Any]) -> ReplogError:
    return kind(message, **facts)


class StorageError(ReplogError):
    """The bytes on disk, or the disk itself, are not as they must be."""


class CorruptBatchError(StorageError):
    """A record batch whose bytes contradict its checksum, its header or its place in the log."""


class CorruptIndexError(StorageError):
    """A derived file is damaged. Never leaves the engine: the file is rebuilt from the log."""


class CorruptFileError(StorageError):
    """A side file (checkpoint, snapshot, metadata) cannot be read as its format says."""


class MissingLogError(StorageError):
    """A log that held records is not there. None is made in its place while nobody else leads."""


class NoSpaceError(StorageError, OSError):
    """The file system is full. What was half written is rolled back; appends may be tried again."""

    retriable = True
    errno: int | None = errno.ENOSPC


class OutOfDescriptorsError(StorageError):
    """No file can be opened: the process or the system has too many open. Nothing was half done."""

    retriable = True


class OutOfMappingsError(OutOfDescriptorsError):
    """No file can be mapped: the process has too many mappings or no address space left, though
    replog's own idle ones were given back. Nothing was half done.
    """


class LogFailedError(StorageError):
    """An I/O error or a failed sync made the log's state on disk unknown; it takes no more work."""

    of_sync: bool = False
    """A sync of small files or of a directory has failed: a second one would not tell what that
    has lost."""


class LogClosedError(StorageError):
    """The log was closed, or belongs to the process that this one was forked from."""


class LogDirectoryLockedError(StorageError):
    """Another process holds the directory open for writing."""


class LogTruncatedError(StorageError):
    """Bytes that a reader of another process was about to read were cut or deleted meanwhile."""

    retriable = True


class UnknownCodecError(StorageError):
    """A batch names a compression codec that the format does not define."""


class DecompressionError(StorageError):
    """A compressed payload cannot be decoded, or grows past the cap on its output."""


class OffsetError(ReplogError):
    """An offset that does not fit where it was given."""


class OffsetOutOfRangeError(OffsetError):
    """The offset lies outside [log_start_offset, log_end_offset]."""


class LogDivergedError(OffsetOutOfRangeError):
    """What was read up to the offset is not what the log has there now: an election that may lose
    records lost it (KIP-320). From `diverging_offset` on the two have nothing in common.
    """

    diverging_offset: int | None = None


class OutOfOrderOffsetError(OffsetError):
    """Offsets of an append do not continue the log."""


class SegmentFullError(OffsetError):
    """Never leaves the engine: the log rolls and appends again."""


class RecordBatchTooLargeError(OffsetError):
    """A batch is larger than max_message_bytes, or an append larger than segment_bytes."""


class InvalidRecordError(ReplogError):
    """A batch is whole, but a client may not send it (counts, deltas, control bit, null key)."""


class MalformedMessageError(ReplogError):
    """Bytes that are not the message they should be: cut, damaged, or of another kind."""


class UnsupportedMessageVersionError(ReplogError):
    """A message, or a version of one, that this replog does not know."""

    version: int | None = None


class InvalidTimestampError(InvalidRecordError):
    """A record's timestamp lies outside the range that the topic accepts."""


class ProducerError(ReplogError):
    """The sequence or epoch of an idempotent producer does not continue its state."""


class OutOfOrderSequenceError(ProducerError):
    """A gap or a step back in a producer's sequence numbers."""


class InvalidProducerEpochError(ProducerError):
    """A producer that a newer one with the same id has replaced."""


class InvalidTransactionStateError(ProducerError):
    """Transactional and plain batches mixed inside one open transaction."""


class TransactionCoordinatorFencedError(ProducerError):
    """An end marker from a coordinator that a newer one has replaced."""


class FencingError(ReplogError):
    """An epoch in the request is not the current one."""


class FencedLeaderEpochError(FencingError):
    """The request carries an older leader epoch than this replica's."""


class UnknownLeaderEpochError(FencingError):
    """The request carries a newer leader epoch than this replica has heard of."""

    retriable = True


class NotLeaderError(FencingError):
    """This replica does not lead the partition."""

    retriable = True


class StaleBrokerEpochError(FencingError):
    """The broker has registered again since the request was made."""


class InvalidPartitionEpochError(FencingError):
    """The partition has changed since the request was made."""


class ReplicationError(ReplogError):
    """The replicas cannot give the durability that was asked for."""


class NotEnoughReplicasError(ReplicationError):
    """The in-sync set is smaller than min_insync_replicas; nothing was written."""

    retriable = True


class NotEnoughReplicasAfterAppendError(ReplicationError):
    """The in-sync set shrank below min_insync_replicas after the append."""

    retriable = True


class IneligibleReplicaError(ReplicationError):
    """A replica that may not join the in-sync set."""


class RequestTimedOutError(ReplicationError, TimeoutError):
    """The answer did not come in time; the record may still be committed."""

    retriable = True


class UnknownTopicOrPartitionError(ReplicationError):
    """The topic does not exist, or has no such partition, or its broker has not heard of it yet."""

    retriable = True


class UnknownTopicIdError(UnknownTopicOrPartitionError):
    """The topic is gone, and its name another one's. A repeat would be for that one."""

    retriable = False


class TopicExistsError(ReplicationError):
    """A topic of that name exists already."""


class NoLeaderError(ReplicationError):
    """Nobody leads the partition now, or its leader could not be reached in time."""

    retriable = True


class OffsetNotAvailableError(ReplicationError):
    """A new leader does not know yet how much is committed; ask again soon."""

    retriable = True


class UsageError(ReplogError, ValueError):
    """A bad option, a closed handle, a wrong thread: the caller's mistake."""


class InvariantViolation(Exception):  # noqa: N818 - the design's name for it
    """A bug in replog: two facts that must agree do not."""


def shown(found: object) -> str:
    """`found` in a message: cut to a line, and its type. No __repr__ can make it fail."""
    kind = type(found).__name__
    if isinstance(found, int) and found.bit_length() > LONG_INTEGER_BITS:
        return f"one of {found.bit_length()} bits ({kind})"
    text = _SHORT.repr(found).replace("\n", " ")
    return f"{text.encode('utf-8', 'backslashreplace').decode()} ({kind})"


def invariant(condition: bool, claim: str, **facts: Any) -> None:
    """Raise InvariantViolation unless `condition` holds; stays on under `python -O`."""
    if not condition:
        detail = ", ".join(f"{name}={fact!r}" for name, fact in facts.items())
        raise InvariantViolation(f"expected {claim}; found {detail}. This is a bug in replog.")
