# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Opening a log: what a clean stop left is taken as it is, what a crash left is made right.

After an unclean stop every batch from the recovery point's segment on is checked: length, CRC, and
the chain (each base offset follows the last, epochs do not fall nor pass the highest one known).
The first that fails ends the log: it and all behind it are cut, and a copy is kept beside the log
as `<segment>.<position>.torn`. Below the recovery point the bytes were synced, so damage there is
rot and not a torn write: nothing is cut, and the log does not open. Indexes, aborted transactions
and producer state of what was checked are made anew. Recovery can be cut short anywhere and started
again: nothing below the recovery point changes, and the recovery point moves only by a flush.
"""

import os

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

from replog._native.log cimport Log
from replog._native.log_segment cimport LogSegment
from replog._native.mapped_file cimport FileView, MappedFile, iovec
from replog._native.record_batch cimport (
    BATCH_BAD_EPOCH, BATCH_BAD_OFFSET, BATCH_OK, BatchHeader, describe, scan_batches,
)

from replog.errors import CorruptBatchError

from replog._native import mapped_file, snapshot_files
from replog._native.appendable_log import SNAPSHOT_INTERVAL_BYTES

OFFSET_MAX = 2**63 - 1

cdef enum:
    RECOVER_CHUNK = 4096


class RecoveryReport:
    """What opening found and did.

    clean: the last stop was clean. checked_bytes: bytes whose CRC was computed. cut_bytes: bytes
    cut from the tail. problem: why, as a sentence, None if nothing was cut. kept: paths of the
    copies. removed: leftover files that were deleted.
    """

    def __init__(self, clean):
        self.clean = clean
        self.checked_bytes = 0
        self.checked_segments = 0
        self.cut_bytes = 0
        self.problem = None
        self.kept = []
        self.removed = []


def begin(Log log not None, *, high_watermark=None, int64_t now_ms):
    """Give `log` its first segment in a directory that has just been made: there is nothing to look
    for. high_watermark: None where nobody else will hold a copy. Returns a RecoveryReport.
    """
    log.install([log.make_segment(0, now_ms)])
    if high_watermark is not None:
        log.watermark = 0
    return RecoveryReport(True)


def load(Log log not None, *, bint clean, int64_t recovery_point=0, log_start_offset=None,
         epoch_entries=None, high_watermark=None, int64_t now_ms, on_progress=None):
    """Fill `log` from its directory; returns a RecoveryReport.

    recovery_point, log_start_offset (None: the first segment's name tells), epoch_entries (None:
    lost or damaged) and high_watermark (None: nobody else holds a copy) are as checkpointed.
    on_progress(done_bytes, total_bytes) is called after each segment that is recovered. Raises
    CorruptBatchError for damage below the recovery point.
    """
    cdef int64_t start_offset = log_start_offset or 0
    report = RecoveryReport(clean)
    log.install(find_segments(log, report, now_ms))
    log.log_start_offset = start_offset
    log.recovered_to = recovery_point
    if not log.segments:
        log.install([log.new_segment(start_offset, now_ms)])
        if recovery_point > start_offset and not clean:
            refuse_missing(log, recovery_point, start_offset)
    if clean and log_start_offset is not None and start_offset < log.bases[0]:
        # Retention moves the checkpoint before it takes a segment away.
        refuse_missing(log, log.bases[0], start_offset)
    if log.log_start_offset < log.bases[0]:
        log.log_start_offset = log.bases[0]
    for entry in epoch_entries or ():
        log.epochs.assign(*entry)
    if clean and log_start_offset is None and not log.compacted and log.epochs.entries():
        refuse_lost_start(log)
    if clean:
        log.log_end_offset = log.active_segment.next_offset()
        if log.log_end_offset < recovery_point and recovery_point > log.log_start_offset:
            refuse_missing(log, recovery_point, log.log_end_offset)
    else:
        recover(log, report, recovery_point, not epoch_entries, now_ms, on_progress)
    log.dense_end = log.log_end_offset
    if log.log_end_offset < start_offset:
        log.restart_locked(start_offset, start_offset)
    log.recovered_to = log.log_end_offset if clean else min(recovery_point, log.log_end_offset)
    log.durable_end = log.recovered_to
    log.find_written_epoch()
    settle_epochs(log, epoch_entries)
    if high_watermark is not None:
        log.watermark = max(log.log_start_offset, min(high_watermark, log.log_end_offset))
    settle_producers(log, clean, now_ms)
    return report


cdef int refuse_missing(Log log, int64_t recovery_point, int64_t end_offset) except -1:
    raise CorruptBatchError(
        f"expected offsets up to {recovery_point}, which were synced, in {log.path}, found none "
        f"from {end_offset} on; segment files are missing or cut: bring them back, or delete the "
        f"directory and copy it from a replica",
        path=log.path, offset=end_offset, position=0,
    )


cdef int refuse_lost_start(Log log) except -1:
    """Where no checkpoint tells the log start, the first epoch does: it begins at or behind it.

    Retention has moved it, on disk, before it takes a segment; a clean stop leaves no doubt.
    """
    cdef int64_t first_start = log.epochs.entries()[0][1]
    if first_start < log.bases[0]:
        refuse_missing(log, log.bases[0], first_start)
    return 0


def find_segments(Log log, report, int64_t now_ms):
    """The segments by their names, after leftovers of interrupted work are finished or deleted."""
    cdef int64_t base_offset
    names = set(mapped_file.list_dir(log.path))
    for name in sorted(names):
        if name.endswith((".deleted", ".cleaned", ".tmp")):
            mapped_file.remove(f"{log.path}/{name}")
            report.removed.append(name)
            names.discard(name)
    finish_swaps(log, names, report)
    segments = []
    for name in sorted(names):
        stem, _, suffix = name.partition(".")
        if len(stem) != 20 or not stem.isdecimal() or int(stem) > OFFSET_MAX:
            continue
        if suffix == "log":
            base_offset = int(stem)
            segments.append(
                LogSegment(
                    log.path, base_offset,
                    index_interval_bytes=log.config.index_interval_bytes,
                    index_bytes_max=log.config.segment_index_bytes,
                    map_bytes=log.segment_bytes, dense=not log.compacted, created_ms=now_ms,
                    missing_index=(
                        f"{stem}.index" not in names or f"{stem}.timeindex" not in names
                    ),
                )
            )
        elif suffix in ("index", "timeindex", "txnindex") and f"{stem}.log" not in names:
            mapped_file.remove(f"{log.path}/{name}")
            report.removed.append(name)
    return segments


def finish_swaps(Log log, names, report):
    """Install `.swap` files, as Kafka does: a replacement that was whole before the crash wins."""
    swaps = sorted(name for name in names if name.endswith(".swap"))
    logs = [name for name in swaps if name.endswith(".log.swap")]
    for name in logs:
        base_offset = int(name[:20])
        end_offset = swapped_end(f"{log.path}/{name}", base_offset)
        for other in sorted(names):
            if other.endswith(".swap") or not other[:20].isdecimal():
                continue
            if base_offset <= int(other[:20]) < end_offset and other[20:21] == ".":
                mapped_file.remove(f"{log.path}/{other}")
                names.discard(other)
                report.removed.append(other)
    for name in swaps:
        final = name.removesuffix(".swap")
        mapped_file.rename(f"{log.path}/{name}", f"{log.path}/{final}")
        names.discard(name)
        names.add(final)
    if swaps:
        mapped_file.fsync_dir(log.path)


def swapped_end(str path, int64_t base_offset):
    """Exclusive end offset of the batches in a `.swap` file."""
    from replog._native.record_batch import scan

    scanned = scan(mapped_file.read_file(path), check_crc=False)
    return max((int(last) for last in scanned.headers["last_offset"]), default=base_offset) + 1


def recover(Log log, report, int64_t recovery_point, bint epochs_lost, int64_t now_ms, on_progress):
    """Check and, at the tail, cut every segment from the recovery point's on."""
    cdef Py_ssize_t first = first_to_recover(log, recovery_point)
    cdef LogSegment segment
    cdef int64_t end_offset
    cdef int32_t highest_epoch = 0x7FFFFFFF if epochs_lost else log.epochs.latest()
    segment = log.segments[first]
    end_offset = segment.base_offset
    log.log_end_offset = end_offset
    log.drop_snapshots(-1)
    log.replay_producers(max(end_offset, log.log_start_offset), now_ms)
    log.take_snapshot()
    # Those behind here may speak of what is gone: each is compared as its offset is reached.
    kept = {log.snapshot_offset}
    total = sum(os.stat(found.path).st_size for found in log.segments[first:])
    for place in range(first, len(log.segments)):
        segment = log.segments[place]
        # A later segment that does not continue the log outlived a truncation before it.
        hole = not log.compacted and segment.base_offset != end_offset
        if place > first and hole:
            if end_offset < recovery_point:
                refuse_missing(log, recovery_point, end_offset)
            report.problem = (
                f"segment {segment.path} starts at offset {segment.base_offset}, not {end_offset}"
            )
        else:
            end_offset = recover_segment(log, segment, report, recovery_point, highest_epoch)
            place += 1
        log.log_end_offset = end_offset
        # As Kafka does: whoever cuts the log at this segment later has nothing to replay.
        log.take_snapshot()
        kept.add(log.snapshot_offset)
        if on_progress is not None:
            on_progress(report.checked_bytes, total)
        if report.problem is not None:
            keep_later(log, place, report)
            break
    log.log_end_offset = end_offset
    log.drop_snapshots(log.bases[first], kept)
    if end_offset < recovery_point and recovery_point > log.log_start_offset:
        refuse_missing(log, recovery_point, end_offset)


cdef Py_ssize_t first_to_recover(Log log, int64_t recovery_point) except -1:
    """The place of the first segment to recover.

    One that ends at the recovery point may have been sealed or cut since: its records are synced,
    its side files perhaps not. It is left alone if they say what the batches say.
    """
    cdef Py_ssize_t first = log.floor_place(max(recovery_point - 1, 0))
    if (
        first + 1 < len(log.segments) and log.bases[first + 1] == recovery_point
        and side_files_stand(log.segments[first], recovery_point)
    ):
        return first + 1
    return first


cdef bint side_files_stand(LogSegment segment, int64_t end_offset) except -1:
    """Whether each index entry is true of the batches, and the largest timestamp is among them."""
    from replog._native.record_batch import scan

    if segment.missing_index or not segment.size_bytes:
        return False
    segment.open_indexes()
    if (
        not segment.offsets.check(whole=True) or not segment.times.check(whole=True)
        or not segment.transaction_index.check()
    ):
        return False
    scanned = scan(segment.view(0, segment.file.size_bytes), check_crc=False)
    headers = scanned.headers
    if scanned.problem is not None or not len(headers):
        return False
    places = dict(zip(headers["last_offset"].tolist(), headers["position"].tolist()))
    stamps = dict(zip(headers["last_offset"].tolist(), headers["max_timestamp"].tolist()))
    offsets = segment.offsets.entries().tolist()
    times = segment.times.entries().tolist()
    return (
        headers["last_offset"][-1] + 1 == end_offset
        and all(places.get(offset) == position for offset, position in offsets)
        and all(stamps.get(offset) == timestamp for timestamp, offset in times)
        and segment.times.last_timestamp == max(stamps.values())
    )


cdef int64_t recover_segment(
    Log log, LogSegment segment, object report, int64_t recovery_point, int32_t highest_epoch
) except -1:
    """Check one segment, remake its side files, cut its tail; returns its end offset."""
    cdef BatchHeader* headers
    cdef int64_t position = 0, found = 0, end = 0, indexed = 0, good = 0, number, size
    cdef int64_t last = segment.base_offset - 1
    cdef int32_t epoch = -1
    cdef int outcome = BATCH_OK
    cdef const uint8_t* bytes
    segment.reset_indexes()
    segment.transaction_index.reset()
    size = segment.file.size_bytes
    headers = <BatchHeader*> malloc(RECOVER_CHUNK * sizeof(BatchHeader))
    if headers == NULL:
        raise MemoryError
    try:
        bytes = segment.file.map(size) if size else NULL
        while position < size and outcome == BATCH_OK:
            with nogil:
                outcome = scan_batches(
                    bytes + position, size - position, position, True, False, last, epoch, headers,
                    RECOVER_CHUNK, &found, &end,
                )
            good = segment.chained(headers, found, &last)
            if good < found:
                outcome = BATCH_BAD_OFFSET
            for number in range(good):
                if headers[number].leader_epoch > highest_epoch:
                    outcome = BATCH_BAD_EPOCH
                    good = number
                    last = headers[number].base_offset - 1
                    break
                epoch = headers[number].leader_epoch
            if good < found:
                end = headers[good].position - position
            segment.add_entries(headers, good, &indexed)
            note_batches(log, segment, headers, good)
            position += end
    finally:
        free(headers)
    report.checked_bytes += position
    report.checked_segments += 1
    if position < size:
        cut_tail(log, segment, report, position, last + 1, recovery_point, outcome)
    segment.close_times()
    segment.offsets.write_out()
    segment.times.write_out()
    return last + 1


cdef int note_batches(Log log, LogSegment segment, BatchHeader* headers, int64_t count) except -1:
    """Epochs, producers and aborted transactions of batches that were found good."""
    cdef int64_t number
    cdef BatchHeader* header
    for number in range(count):
        header = headers + number
        if header.last_offset < log.log_start_offset:
            continue
        if header.leader_epoch >= 0 and header.leader_epoch > log.epochs.latest():
            log.epochs.maybe_assign(header.leader_epoch, header.base_offset)
        if header.producer_id < 0:
            continue
        completed = log.producers.update(header)
        if completed is not None and completed.aborted:
            segment.transaction_index.append(completed)
    return 0


cdef int cut_tail(
    Log log, LogSegment segment, object report, int64_t position, int64_t end_offset,
    int64_t recovery_point, int outcome
) except -1:
    """Cut a torn tail, keeping a copy; refuse where the bytes were known to be synced."""
    cdef int64_t size = segment.file.size_bytes
    if end_offset < recovery_point:
        segment.refuse(outcome, position)
    cause = describe(outcome)
    report.problem = f"the batch at byte {position} of {segment.path} is cut: {cause}"
    report.cut_bytes += size - position
    keep_copy(segment, position, report)
    segment.shrink(position)
    return 0


cdef int keep_copy(LogSegment segment, int64_t position, object report) except -1:
    """Copy file bytes from `position` on to a `.torn` file; zeros are not worth keeping."""
    cdef FileView tail = segment.view(position, segment.file.size_bytes - position)
    cdef MappedFile copy
    cdef iovec part
    if not bytes(memoryview(tail)).strip(b"\0"):
        return 0
    path = f"{segment.prefix}.{position}.torn"
    copy = MappedFile(path, writable=True, create=True)
    copy.truncate(0)
    part.iov_base = <void*> tail.address
    part.iov_len = tail.length_bytes
    copy.append(&part, 1, tail.length_bytes)
    copy.flush()
    copy.close()
    report.kept.append(path)
    return 0


def keep_later(Log log, Py_ssize_t place, report):
    """Put segments behind a cut aside as `.torn`, the last one first: no hole can appear."""
    cdef LogSegment segment
    gone = log.segments[place:]
    log.install(list(log.segments[:place]) if place else [])
    for segment in reversed(gone):
        report.cut_bytes += os.stat(segment.path).st_size
        kept = f"{segment.prefix}.0.torn"
        mapped_file.rename(segment.path, kept)
        report.kept.append(kept)
        for suffix in (".index", ".timeindex", ".txnindex"):
            if os.path.exists(segment.prefix + suffix):
                mapped_file.remove(segment.prefix + suffix)
    mapped_file.fsync_dir(log.path)


def settle_epochs(Log log, epoch_entries):
    """Make the epoch cache say what the batches say; write it if that is not what was given."""
    cdef BatchHeader last
    cdef LogSegment segment = log.active_segment
    known = epoch_entries is not None
    if known and log.log_end_offset > max(segment.base_offset, log.log_start_offset):
        segment.find(log.log_end_offset - 1, &last)
        # What lies below the log start has no entry of its own any more.
        known = (
            log.epochs.epoch_for_offset(max(last.base_offset, log.log_start_offset))
            == last.leader_epoch
        )
        if epoch_entries and last.leader_epoch > log.epochs.latest():
            refuse_lone_epoch(log, segment, &last)
        if known and not log.compacted:
            known = all(begins_there(log, last.leader_epoch, *entry) for entry in epoch_entries)
    if not known:
        rebuild_epochs(log)
    log.epochs.truncate_from_end(log.log_end_offset)
    log.epochs.truncate_from_start(log.log_start_offset)
    if epoch_entries is None or log.epochs.entries() != list(map(tuple, epoch_entries)):
        log.write_epochs()


cdef int refuse_lone_epoch(Log log, LogSegment segment, const BatchHeader* last) except -1:
    """An epoch is on disk before its first batch: one batch alone beyond it is a flipped field.

    Where the batch before agrees with it, the checkpoint is what is wrong, and is made anew.
    """
    cdef BatchHeader before
    if last.base_offset == segment.base_offset or not segment.find(
        last.base_offset - 1, &before
    ) or before.leader_epoch != last.leader_epoch:
        segment.refuse(BATCH_BAD_EPOCH, last.position)
    return 0


def begins_there(Log log, int32_t last_epoch, int32_t leader_epoch, int64_t start_offset):
    """Whether the batches begin `leader_epoch` at start_offset, as far as they are there."""
    cdef BatchHeader header
    cdef LogSegment segment
    if start_offset >= log.log_end_offset:
        return leader_epoch >= last_epoch
    start_offset = max(start_offset, log.log_start_offset)
    for segment in log.segments[log.floor_place(start_offset):]:
        if segment.find(start_offset, &header):
            break
    else:
        return False
    if start_offset == log.log_start_offset:
        return header.leader_epoch >= leader_epoch
    if header.base_offset != start_offset or header.leader_epoch != leader_epoch:
        return False
    segment = log.segments[log.floor_place(start_offset - 1)]
    return not segment.find(start_offset - 1, &header) or header.leader_epoch < leader_epoch


def rebuild_epochs(Log log):
    """Read every epoch from the batch headers; a lost checkpoint file leaves nothing else."""
    from replog._native.record_batch import scan

    cdef LogSegment segment
    log.epochs.clear()
    for number, segment in enumerate(log.segments):
        log.check_joined(log.segments, number)
        if not segment.size_bytes:
            continue
        headers = scan(segment.view(0, segment.file.size_bytes), check_crc=False).headers
        epochs = headers["leader_epoch"]
        for place in range(len(epochs)):
            if headers["last_offset"][place] < log.log_start_offset:
                continue
            if epochs[place] > log.epochs.latest():
                log.epochs.assign(int(epochs[place]), int(headers["base_offset"][place]))


def settle_producers(Log log, bint clean, int64_t now_ms):
    """Producer state at the log end, and no snapshot files but those that a later load may use."""
    cdef LogSegment segment
    for offset in snapshot_files.strays(log.path, set(log.bases)):
        # As Kafka does; but inside a long segment they are what keeps a truncation short.
        segment = log.segments[log.floor_place(offset)]
        if segment.size_bytes <= SNAPSHOT_INTERVAL_BYTES:
            mapped_file.remove(snapshot_files.snapshot_path(log.path, offset))
    log.drop_snapshots(log.log_end_offset)
    if clean:
        log.replay_producers(log.log_end_offset, now_ms)
    else:
        log.producers.end_offset = log.log_end_offset
        log.producers.remove_expired(now_ms)
        log.producers.release_below(log.high_watermark)
    log.take_snapshot()
