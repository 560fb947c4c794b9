# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Opening a log: what a clean stop left is taken as it is, what a crash left is made right.

After an unclean stop every batch from the recovery point's segment on is checked (segment_recovery
has the rules): length, CRC, and the chain, in which each base offset follows the last and epochs do
not fall nor pass the highest one known. A hole between two segments is judged as a damaged batch
is; in a compacted log it is none. Indexes, aborted transactions and producer state of what was
checked are made anew. Recovery can be cut short anywhere and started again: nothing below the
recovery point changes, and the recovery point moves only by a flush.
"""

import os

from libc.stdint cimport int32_t, int64_t

from replog._native.log cimport Log
from replog._native.log_segment cimport LogSegment
from replog._native.log_state cimport LogState
from replog._native.record_batch cimport BATCH_NEW_EPOCH, BatchHeader
from replog._native.segment_list cimport SegmentList
from replog._native.segment_recovery cimport Rules, recover_segment, refuse_cut

from replog.errors import CorruptBatchError

from replog._native import mapped_file
from replog._native.log_producers import SNAPSHOT_INTERVAL_BYTES
from replog._native.segment_listing import drop_below_start, find_segments
from replog._native.segment_recovery import RecoveryReport

cdef int64_t OFFSET_MAX = 0x7FFFFFFFFFFFFFFF

cdef enum:
    EPOCH_MAX = 0x7FFFFFFF


def begin(Log log not None, *, high_watermark=None, int64_t now_ms):
    """Give `log` its first segment in a directory that has just been made: there is nothing to look
    for. high_watermark: None where nobody else will hold a copy. Returns a RecoveryReport.
    """
    cdef LogState state = log.state
    state.segments = SegmentList((log.maker.make(0, now_ms),))
    if high_watermark is not None:
        state.watermark = 0
    return RecoveryReport(True)


def load(Log log not None, *, bint clean, bint keeps_whole=False, bint holes=False,
         bint adopts=False, int64_t recovery_point=0, log_start_offset=None, epoch_entries=None,
         high_watermark=None, int64_t now_ms, on_progress=None):
    """Fill `log` from its directory; returns a RecoveryReport.

    keeps_whole: after an unclean stop no whole batch may be cut. holes: compaction has taken
    offsets. adopts: another program wrote last, so that it may have, and its epochs may be younger
    than its checkpoint. recovery_point, log_start_offset (None: the first segment's name tells),
    epoch_entries (None: lost or damaged) and high_watermark (None: nobody else holds a copy) are as
    checkpointed. on_progress(done_bytes, total_bytes) is called after each segment that is
    recovered. Raises CorruptBatchError for damage that must not be cut.
    """
    cdef LogState state = log.state
    cdef int64_t start_offset = log_start_offset or 0
    cdef Rules rules = Rules()
    report = RecoveryReport(clean)
    rules.recovery_point, rules.keeps_whole = recovery_point, keeps_whole
    rules.adopts, rules.holes = adopts and not clean, holes or (adopts and not clean)
    state.segments = SegmentList(find_segments(state, report, not rules.holes, now_ms))
    state.log_start_offset = start_offset
    state.recovered_to = recovery_point
    if not state.segments.count:
        state.segments = SegmentList((log.maker.replace(start_offset, now_ms),))
        if recovery_point > start_offset and not clean:
            refuse_missing(state, recovery_point, start_offset)
    drop_below_start(state, report, OFFSET_MAX if clean else recovery_point)
    first_base = state.segments.base(0)
    if clean and log_start_offset is not None and start_offset < first_base:
        # Retention moves the checkpoint before it takes a segment away.
        refuse_missing(state, first_base, start_offset)
    if state.log_start_offset < first_base:
        state.log_start_offset = first_base
    for entry in epoch_entries or ():
        state.epochs.assign(*entry)
    if clean and log_start_offset is None and not holes and state.epochs.entries():
        refuse_lost_start(state)
    if clean:
        state.log_end_offset = state.segments.last().next_offset()
        if state.log_end_offset < recovery_point and recovery_point > state.log_start_offset:
            refuse_missing(state, recovery_point, state.log_end_offset)
    else:
        rules.highest_epoch = state.epochs.latest() if epoch_entries and not adopts else EPOCH_MAX
        recover(log, report, rules, now_ms, on_progress)
    state.dense_end = state.log_end_offset
    if state.log_end_offset < start_offset:
        # In a log of ours all of it was deleted: the start lies in a batch that was cut.
        if rules.adopts and keeps_whole and state.size_bytes():
            refuse_start(state, start_offset)
        log.cut.restart(start_offset, start_offset)
    state.recovered_to = state.log_end_offset
    if not clean:
        state.recovered_to = min(recovery_point, state.log_end_offset)
    state.durable_end = state.recovered_to
    # A process that died may have synced no name of its last segments: the next flush does.
    state.names_unsynced = state.tail_unsynced = not clean
    log.cut.find_written_epoch()
    if not holes and not report.holes:
        close_up(state)
    settle_epochs(state, epoch_entries, holes or report.holes)
    if high_watermark is not None:
        state.watermark = max(state.log_start_offset, min(high_watermark, state.log_end_offset))
    settle_producers(log, clean, now_ms)
    return report


cdef int close_up(LogState state) except -1:
    """From here on a hole is damage: nobody has said that there are any, and none was found."""
    cdef LogSegment segment
    for segment in state.segments:
        segment.dense = True
    return 0


cdef int refuse_missing(LogState state, int64_t recovery_point, int64_t end_offset) except -1:
    raise CorruptBatchError(
        f"expected offsets up to {recovery_point}, which were synced, in {state.path}, found none "
        f"from {end_offset} on; segment files are missing or cut: bring them back, or delete the "
        f"directory and copy it from a replica",
        path=state.path, offset=end_offset, position=0,
    )


cdef int refuse_start(LogState state, int64_t start_offset) except -1:
    raise CorruptBatchError(
        f"expected the records of {state.path} to reach its log start {start_offset}, found them "
        f"to end at offset {state.log_end_offset}; take the log's entry out of log-start-offset-"
        f"checkpoint if it is another log's, or open it with unclean_recovery='cut' to begin anew",
        path=state.path, offset=state.log_end_offset,
    )


cdef int refuse_lost_start(LogState state) except -1:
    """Where no checkpoint tells the log start, the first epoch does: it begins at or behind it.

    Retention has moved it, on disk, before it takes a segment; a clean stop leaves no doubt.
    """
    cdef int64_t first_start = state.epochs.entries()[0][1]
    if first_start < state.segments.base(0):
        refuse_missing(state, state.segments.base(0), first_start)
    return 0


def recover(Log log, report, Rules rules, int64_t now_ms, on_progress):
    """Check and, at the tail, cut every segment from the recovery point's on."""
    cdef LogState state = log.state
    cdef Py_ssize_t first = first_to_recover(state, rules.recovery_point)
    cdef LogSegment segment = state.segments.at(first)
    cdef int64_t end_offset = segment.base_offset
    cdef Py_ssize_t place
    if rules.adopts:
        # All of it is looked at before anything is changed.
        check_segments(state, first, rules)
    state.log_end_offset = end_offset
    log.producers.drop_snapshots(-1)
    log.producers.replay(max(end_offset, state.log_start_offset), now_ms)
    log.producers.take_snapshot()
    # Those behind here may speak of what is gone: each is compared as its offset is reached.
    kept = {log.producers.snapshot_offset}
    total = sum(os.stat(found.path).st_size for found in state.segments[first:])
    for place in range(first, state.segments.count):
        segment = state.segments.at(place)
        if outlived(state, place, end_offset, rules):
            keep_later(state, place, report)
            break
        if rules.passes_over(end_offset, segment.base_offset):
            report.holes |= segment.base_offset > end_offset
            end_offset = recover_segment(state, place, report, rules, True)
            place += 1
        else:
            note_hole(state, place, end_offset, report, rules)
        state.log_end_offset = end_offset
        # As Kafka does: whoever cuts the log at this segment later has nothing to replay.
        log.producers.take_snapshot()
        kept.add(log.producers.snapshot_offset)
        if on_progress is not None:
            on_progress(report.checked_bytes, total)
        if report.problem is not None:
            keep_later(state, place, report)
            break
    state.log_end_offset = end_offset
    log.producers.drop_snapshots(state.segments.base(first), kept)
    if end_offset < rules.recovery_point and rules.recovery_point > state.log_start_offset:
        refuse_missing(state, rules.recovery_point, end_offset)


cdef bint outlived(LogState state, Py_ssize_t place, int64_t end_offset, Rules rules) except -1:
    """Whether empty files are left where the log had an end that it gave up: by a cut, or by a roll
    that failed. That they are gone again was not synced, and no compaction makes a hole there.
    """
    cdef LogSegment segment = state.segments.at(place)
    if rules.adopts or not segment.base_offset > end_offset >= rules.recovery_point:
        return False
    if rules.keeps_whole and not rules.holes:
        return False
    for segment in state.segments[place:]:
        if segment.size_bytes:
            return False
    return True


cdef int check_segments(LogState state, Py_ssize_t first, Rules rules) except -1:
    """Refuse what recovery would refuse, before it has changed a file."""
    cdef Py_ssize_t place
    cdef LogSegment segment = state.segments.at(first)
    cdef int64_t end_offset = segment.base_offset
    report = RecoveryReport(False)
    for place in range(first, state.segments.count):
        segment = state.segments.at(place)
        if not rules.passes_over(end_offset, segment.base_offset):
            note_hole(state, place, end_offset, report, rules)
        else:
            end_offset = recover_segment(state, place, report, rules, False)
        if report.problem is not None:
            break
    return 0


cdef int note_hole(
    LogState state, Py_ssize_t place, int64_t end_offset, report, Rules rules
) except -1:
    """A segment that does not continue the log: it outlived what was lost or cut before it."""
    cdef LogSegment segment = state.segments.at(place)
    if end_offset < rules.recovery_point:
        refuse_missing(state, rules.recovery_point, end_offset)
    report.problem = (
        f"segment {segment.path} starts at offset {segment.base_offset}, not {end_offset}"
    )
    if rules.keeps_whole:
        refuse_cut(state, segment, 0, end_offset, report.problem)
    return 0


cdef Py_ssize_t first_to_recover(LogState state, int64_t recovery_point) except -1:
    """The place of the first segment to recover.

    One that ends at the recovery point may have been sealed or cut since: its records are synced,
    its side files perhaps not. It is left alone if they say what the batches say.
    """
    cdef Py_ssize_t first = state.floor_place(max(recovery_point - 1, 0))
    if (
        first + 1 < state.segments.count and state.segments.base(first + 1) == recovery_point
        and side_files_stand(state.segments.at(first), recovery_point)
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
        headers["last_offset"].item(-1) + 1 == end_offset
        and all(places.get(offset) == position for offset, position in offsets)
        and all(stamps.get(offset) == timestamp for timestamp, offset in times)
        and segment.times.last_timestamp == max(stamps.values())
    )


def keep_later(LogState state, Py_ssize_t place, report):
    """Put segments behind a cut aside as `.torn`, the last one first: no hole can appear."""
    cdef LogSegment segment
    gone = state.segments[place:]
    state.segments = state.segments.first(place)
    for segment in reversed(gone):
        if segment.size_bytes:
            report.cut_bytes += segment.size_bytes
            kept = f"{segment.prefix}.0.torn"
            mapped_file.rename(segment.path, kept)
            report.kept.append(kept)
        else:
            mapped_file.remove(segment.path)
            report.removed.append(os.path.basename(segment.path))
        for suffix in (".index", ".timeindex", ".txnindex"):
            if os.path.exists(segment.prefix + suffix):
                mapped_file.remove(segment.prefix + suffix)
    mapped_file.fsync_dir(state.path)


def settle_epochs(LogState state, epoch_entries, bint holes):
    """Make the epoch cache say what the batches say; write it if that is not what was given."""
    cdef BatchHeader last
    cdef LogSegment segment = state.segments.last()
    known = epoch_entries is not None
    if known and state.log_end_offset > max(segment.base_offset, state.log_start_offset):
        segment.find(state.log_end_offset - 1, &last)
        # What lies below the log start has no entry of its own any more.
        known = (
            state.epochs.epoch_for_offset(max(last.base_offset, state.log_start_offset))
            == last.leader_epoch
        )
        if epoch_entries and last.leader_epoch > state.epochs.latest():
            refuse_lone_epoch(state, segment, &last)
        if known and not holes:
            known = all(begins_there(state, last.leader_epoch, *entry) for entry in epoch_entries)
    if not known:
        rebuild_epochs(state)
    state.epochs.truncate_from_end(state.log_end_offset)
    state.epochs.truncate_from_start(state.log_start_offset)
    if epoch_entries is None or state.epochs.entries() != list(map(tuple, epoch_entries)):
        state.keeper.write_epochs(state)


cdef int refuse_lone_epoch(LogState state, LogSegment segment, const BatchHeader* last) except -1:
    """An epoch is on disk before its first batch: one batch alone beyond it is a flipped field.

    Where the batch before agrees with it, the checkpoint is what is wrong, and is made anew.
    """
    cdef BatchHeader before
    if last.base_offset == segment.base_offset or not segment.find(
        last.base_offset - 1, &before
    ) or before.leader_epoch != last.leader_epoch:
        segment.refuse(BATCH_NEW_EPOCH, last.position)
    return 0


def begins_there(LogState state, int32_t last_epoch, int32_t leader_epoch, int64_t start_offset):
    """Whether the batches begin `leader_epoch` at start_offset, as far as they are there."""
    cdef BatchHeader header
    cdef LogSegment segment
    cdef Py_ssize_t place
    if start_offset >= state.log_end_offset:
        return leader_epoch >= last_epoch
    start_offset = max(start_offset, state.log_start_offset)
    for place in range(state.floor_place(start_offset), state.segments.count):
        segment = state.segments.at(place)
        if segment.find(start_offset, &header):
            break
    else:
        return False
    if start_offset == state.log_start_offset:
        return header.leader_epoch >= leader_epoch
    if header.base_offset != start_offset or header.leader_epoch != leader_epoch:
        return False
    segment = state.segments.at(state.floor_place(start_offset - 1))
    return not segment.find(start_offset - 1, &header) or header.leader_epoch < leader_epoch


def rebuild_epochs(LogState state):
    """Read every epoch from the batch headers; a lost checkpoint file leaves nothing else."""
    from replog._native.record_batch import scan

    cdef LogSegment segment
    state.epochs.clear()
    for number, segment in enumerate(state.segments):
        state.check_joined(state.segments, number)
        if not segment.size_bytes:
            continue
        headers = scan(segment.view(0, segment.file.size_bytes), check_crc=False).headers
        epochs = headers["leader_epoch"]
        for place in range(len(epochs)):
            if headers["last_offset"][place] < state.log_start_offset:
                continue
            if epochs[place] > state.epochs.latest():
                state.epochs.assign(int(epochs[place]), int(headers["base_offset"][place]))


def settle_producers(Log log, bint clean, int64_t now_ms):
    """Producer state at the log end, and no snapshot files but those that a later load may use."""
    cdef LogState state = log.state
    cdef LogSegment segment
    for offset in log.producers.files.strays({segment.base_offset for segment in state.segments}):
        # As Kafka does; but inside a long segment they are what keeps a truncation short.
        segment = state.segments.at(state.floor_place(offset))
        if segment.size_bytes <= SNAPSHOT_INTERVAL_BYTES:
            log.producers.files.remove_one(offset)
    log.producers.drop_snapshots(state.log_end_offset)
    if clean:
        log.producers.replay(state.log_end_offset, now_ms)
    else:
        state.producers.end_offset = state.log_end_offset
        state.producers.remove_expired(now_ms)
        state.producers.release_below(state.committed_end())
    log.producers.take_snapshot()
