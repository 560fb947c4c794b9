# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""One segment after an unclean stop: each batch checked, side files made anew, a torn tail cut.

At the first batch that is not whole, or does not follow the one before, there is one question: can
a write of ours that was not synced have left it?

    below the recovery point        no: rot. The log does not open
    nothing whole behind it         yes: a torn tail. It is cut
    whole batches behind it         yes where power was lost: they are cut with it. No where only a
                                    process died, or where another program wrote: the log does not
                                    open, unless it is told to cut

What is cut is kept beside the log as `<segment>.<position>.torn`.
"""

from libc.limits cimport INT_MAX
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

from replog._native.log_segment cimport LogSegment
from replog._native.log_state cimport LogState
from replog._native.mapped_file cimport FileView, MappedFile, Mapping, iovec
from replog._native.record_batch cimport (
    BATCH_BAD_OFFSET, BATCH_NEW_EPOCH, BATCH_OK, BatchHeader, crc_matches, describe, find_whole,
    parse_header, scan_batches,
)

from replog.errors import CorruptBatchError

cdef enum:
    RECOVER_CHUNK = 4096


class RecoveryReport:
    """What opening found and did.

    clean: the last stop was clean. checked_bytes: bytes whose CRC was computed. cut_bytes: bytes
    cut from the tail. problem: why, as a sentence, None if nothing was cut. kept: paths of the
    copies. removed: leftover files that were deleted. holes: offsets are missing between batches
    that were checked, though nobody had said so.
    """

    def __init__(self, clean):
        self.clean = clean
        self.checked_bytes = 0
        self.checked_segments = 0
        self.cut_bytes = 0
        self.problem = None
        self.kept = []
        self.removed = []
        self.holes = False


cdef class Rules:
    """What recovery may take for a torn tail."""

    cdef bint passes_over(self, int64_t end_offset, int64_t base_offset) noexcept:
        """Whether a batch or segment may begin there behind one that ends at end_offset."""
        return base_offset == end_offset or (base_offset > end_offset and self.holes)


cdef int refuse_cut(
    LogState state, LogSegment segment, int64_t position, int64_t offset, str found
) except -1:
    """Nothing of ours leaves whole batches behind such a place: they must not go unasked."""
    raise CorruptBatchError(
        f"expected whole batches up to the end of the log, found that {found}, and whole ones "
        f"behind it, which no write of ours that was cut short leaves: nothing was cut; copy the "
        f"directory from a replica, or open it with unclean_recovery='cut' to end the log at "
        f"offset {offset}, or with cleanup_policy='compact' if offsets are missing because the "
        f"topic was ever compacted",
        path=segment.path, position=position, offset=offset,
    )


cdef int64_t recover_segment(
    LogState state, Py_ssize_t place, object report, Rules rules, bint writing
) except -1:
    """Check one segment, remake its side files, cut its tail; returns its end offset.

    Not writing: only look, and refuse what must not be cut.
    """
    cdef LogSegment segment = state.segments.at(place)
    cdef BatchHeader* headers
    cdef int64_t position = 0, found = 0, end = 0, indexed = 0, good = 0, size
    cdef int64_t last = segment.base_offset - 1, before
    cdef int32_t epoch = -1
    cdef int outcome = BATCH_OK
    cdef Mapping held
    cdef const uint8_t* bytes = NULL
    segment.open()
    if writing:
        segment.reset_indexes()
        segment.transaction_index.reset()
    size = segment.file.size_bytes
    headers = <BatchHeader*> malloc(RECOVER_CHUNK * sizeof(BatchHeader))
    if headers == NULL:
        raise MemoryError
    try:
        if size:
            held = segment.file.map(size)
            bytes = held.address
        while position < size and outcome == BATCH_OK:
            with nogil:
                outcome = scan_batches(
                    bytes + position, size - position, position, True, False, last, epoch, headers,
                    RECOVER_CHUNK, &found, &end,
                )
            before = last
            good = segment.chained(headers, found, &last)
            if good < found:
                outcome = BATCH_BAD_OFFSET
            good = known_epochs(headers, good, rules.highest_epoch, &before, &epoch, report)
            if last != before:
                outcome = BATCH_NEW_EPOCH
                last = before
            if good < found:
                end = headers[good].position - position
            if writing:
                segment.add_entries(headers, good, &indexed)
                note_batches(state, segment, headers, good)
            position += end
    finally:
        free(headers)
    if position < size:
        cut_tail(state, place, report, rules, position, last + 1, outcome, writing)
    if writing:
        report.checked_bytes += position
        report.checked_segments += 1
        segment.seal()
    return last + 1


cdef int64_t known_epochs(
    const BatchHeader* headers, int64_t count, int32_t highest, int64_t* last, int32_t* epoch,
    object report
) except -1:
    """How many have an epoch that was on disk before them; *last and *epoch are of the last one."""
    cdef int64_t number
    for number in range(count):
        if headers[number].leader_epoch > highest:
            return number
        if headers[number].base_offset != last[0] + 1:
            report.holes = True
        last[0] = headers[number].last_offset
        epoch[0] = headers[number].leader_epoch
    return count


cdef int note_batches(
    LogState state, LogSegment segment, BatchHeader* headers, int64_t count
) except -1:
    """Epochs, producers and aborted transactions of batches that were found good."""
    cdef int64_t number
    cdef BatchHeader* header
    for number in range(count):
        header = headers + number
        if header.last_offset < state.log_start_offset:
            continue
        if header.leader_epoch >= 0 and header.leader_epoch > state.epochs.latest():
            state.epochs.maybe_assign(header.leader_epoch, header.base_offset)
        if header.producer_id < 0:
            continue
        completed = state.producers.update(header)
        if completed is not None and completed.aborted:
            segment.transaction_index.append(completed)
    return 0


cdef int cut_tail(
    LogState state, Py_ssize_t place, object report, Rules rules, int64_t position,
    int64_t end_offset, int outcome, bint writing
) except -1:
    """Cut a torn tail, keeping a copy; refuse where it cannot be one."""
    cdef LogSegment segment = state.segments.at(place)
    cdef int64_t size = segment.file.size_bytes
    if end_offset < rules.recovery_point:
        segment.refuse(outcome, position)
    cause = f"the batch at byte {position} of {segment.path} is damaged: {describe(outcome)}"
    if rules.keeps_whole and (
        whole_behind(state, place, position, end_offset)
        or (place + 1 < state.segments.count and not rules.holes)
    ):
        refuse_cut(state, segment, position, end_offset, cause)
    report.problem = f"{cause}; it is cut, with what lies behind it"
    if writing:
        report.cut_bytes += size - position
        keep_copy(segment, position, report)
        segment.shrink(position)
        # As every cut: what is written next may not reach the disk, and the tail be whole then.
        segment.flush_records()
    return 0


cdef bint whole_behind(
    LogState state, Py_ssize_t place, int64_t position, int64_t offset
) except -1:
    """Whether a whole batch lies at `position` of a segment, behind it, or in a later segment."""
    cdef LogSegment segment = state.segments.at(place)
    cdef int64_t size = segment.file.size_bytes, found
    cdef Mapping held = segment.file.map(size)
    cdef const uint8_t* bytes = held.address
    cdef BatchHeader header
    if parse_header(bytes + position, size - position, position, &header) == BATCH_OK and (
        crc_matches(bytes + position, &header)
    ):
        return True
    with nogil:
        # Behind it the log goes on at a later offset: bytes of its records do not count.
        found = find_whole(
            bytes + position + 1, size - position - 1, offset + 1, segment.base_offset + INT_MAX
        )
    if found >= 0:
        return True
    for segment in state.segments[place + 1:]:
        size = segment.size_bytes
        if not size:
            continue
        held = segment.file.map(size)
        if find_whole(
            held.address, size, segment.base_offset, segment.base_offset + INT_MAX
        ) >= 0:
            return True
    return False


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
