# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""The read side of a log: where an offset or a timestamp is, and views of the bytes.

Readers take no lock. They take the log end first and the list of segments then, each once: an
append moves the log end last and a truncation moves it first, so that a reader never looks behind
what is whole. A look-up that a truncation overtook is made again: it may have met segments of
before and bytes of after. A LogSlice pins its range of the mapping for as long as it, or a buffer
of it, lives.
"""

from libc.stdint cimport int64_t

from replog._native.arguments cimport flag_of, int32_of, int64_of, offset_of
from replog._native.batch_format cimport CONTROL_ABORT
from replog._native.log_segment cimport LogSegment
from replog._native.log_slice cimport LogSlice
from replog._native.record_batch cimport BatchHeader
from replog._native.segment_list cimport SegmentList

from replog.errors import (
    CorruptBatchError, LogClosedError, LogTruncatedError, OffsetOutOfRangeError,
)

from replog._native import record_decoder

cdef int64_t OFFSET_MAX = 0x7FFFFFFFFFFFFFFF


cdef class ReadableLog:
    @property
    def closed(self):
        return self.guard.closed

    @property
    def failed(self):
        """Whether an I/O error has made the log unfit for writing; it is readable, and can be
        closed."""
        return self.guard.failed

    @property
    def forked(self):
        """Whether this is a child that was forked from the process that opened the log."""
        return self.guard.forked()

    cpdef int check_open(self) except -1:  # called from both sides
        """Raise LogClosedError if the log is closed; never blocks."""
        if self.guard.closed:
            raise LogClosedError(
                f"expected an open log, found {self.path} closed; open it again", path=self.path
            )
        return 0

    @property
    def high_watermark(self):
        """Exclusive: offsets below it are committed. Follows log_end_offset where nobody set it."""
        if self.watermark >= 0:
            return self.watermark
        return self.log_end_offset if self.unit_start < 0 else self.unit_start

    @property
    def follows_high_watermark(self):
        """Whether somebody has set the high watermark: other replicas decide what is committed."""
        return self.watermark >= 0

    @property
    def last_stable_offset(self):
        """Exclusive end of what read_committed may read."""
        cdef int64_t bound = self.high_watermark
        unstable = self.producers.first_unstable_offset(bound)
        if unstable is None:
            return bound
        return min(bound, self.next_there(max(unstable, self.log_start_offset)))

    cdef int64_t next_there(self, int64_t offset) except -1:
        """The first offset from `offset` on that compaction has not taken; the log end if none.

        What opened a transaction may be gone: the marker that let compaction take it was cut.
        """
        cdef SegmentList segments = self.segments
        cdef LogSegment segment
        cdef BatchHeader header
        cdef Py_ssize_t place
        for place in range(segments.floor(offset), segments.count):
            segment = segments.at(place)
            if segment.dense and segment.base_offset <= offset:
                return offset
            if segment.find(offset, &header):
                return max(offset, header.base_offset)
        return self.log_end_offset

    @property
    def latest_epoch(self):
        """The highest leader epoch known, -1 for none."""
        return self.epochs.latest_epoch

    @property
    def epoch_entries(self):
        """(leader_epoch, start_offset) of every epoch, ascending."""
        return self.epochs.entries()

    @property
    def epoch_text(self):
        """What `leader-epoch-checkpoint` is to hold of them."""
        return self.epochs.checkpoint_text()

    @property
    def producer_entries(self):
        """State of every idempotent producer, in the order of Kafka's snapshot file."""
        return self.producers.entries()

    def end_offset_for_epoch(self, leader_epoch):
        """(leader_epoch, exclusive end offset) of the largest epoch <= the one asked; (-1, -1).

        Raises UsageError for what is no 32-bit integer, LogClosedError.
        """
        self.check_open()
        return self.epochs.end_offset_for(
            int32_of(leader_epoch, "leader_epoch", self.path), self.log_end_offset
        )

    def epoch_for_offset(self, offset):
        """The leader epoch that `offset` was written in, -1 if unknown.

        Raises UsageError for what is no integer from 0 on, LogClosedError.
        """
        self.check_open()
        return self.epochs.epoch_for_offset(offset_of(offset, "offset", self.path))

    def set_high_watermark(self, offset):
        """Move the high watermark, clamped to [log_start_offset, log_end_offset]; returns it.

        Raises UsageError for what is no integer from 0 on, LogClosedError.
        """
        cdef int64_t asked = offset_of(offset, "high_watermark", self.path)
        self.check_open()
        self.watermark = max(self.log_start_offset, min(asked, self.log_end_offset))
        self.producers.release_below(self.watermark)
        return self.watermark

    @property
    def size_bytes(self):
        """Bytes of all data files together."""
        return sum(segment.size_bytes for segment in self.segments)

    cdef int64_t floor_place(self, int64_t offset) except -1:
        """Place of the last segment with base_offset <= offset; 0 if there is none."""
        return self.segments.floor(offset)

    cdef int check_joined(self, SegmentList segments, Py_ssize_t place) except -1:
        """Refuse to go from segments[place] to the next over offsets that neither has.

        Only a compacted log has such holes; in any other a file was emptied, cut or taken away.
        """
        cdef LogSegment segment = segments.at(place)
        cdef LogSegment following
        cdef BatchHeader header
        cdef Py_ssize_t now_at
        if not segment.dense or place + 1 >= segments.count:
            return 0
        following = segments.at(place + 1)
        if following.base_offset <= max(segment.joined_end, self.log_start_offset):
            return 0
        if segment.find(following.base_offset - 1, &header):
            segment.joined_end = following.base_offset
            return 0
        # Unless a truncation or retention has taken the two apart meanwhile.
        now_at = self.floor_place(segment.base_offset)
        if segments[place:place + 2] == self.segments[now_at:now_at + 2]:
            end_offset = segment.next_offset()
            raise CorruptBatchError(
                f"expected the records of {segment.path} to go on up to offset "
                f"{following.base_offset}, where the next segment begins, found them to end at "
                f"offset {end_offset}; the file was emptied or cut, or those behind it are gone: "
                f"bring them back, or copy the directory from a replica; if the topic was ever "
                f"compacted, open the log with cleanup_policy='compact'",
                path=segment.path, position=segment.file.size_bytes, offset=end_offset,
            )
        return 0

    cdef int64_t bound_position(
        self, SegmentList segments, Py_ssize_t place, int64_t bound, bint whole
    ) except -1:
        """Byte place in segments[place] that a read below `bound` may go up to."""
        cdef LogSegment segment = segments.at(place)
        cdef BatchHeader header
        segment.open()
        if bound >= self.log_end_offset or (
            place + 1 < segments.count and bound >= segments.base(place + 1)
        ):
            return segment.file.size_bytes
        if not segment.find(bound, &header):
            return segment.file.size_bytes
        if whole and header.base_offset < bound:
            return header.position + header.size_bytes
        return header.position

    def read(self, start_offset, max_bytes=1048576, *, end_offset=None, min_one_message=True,
             whole_batches=False):
        """A LogSlice from the batch that holds start_offset, within one segment.

        Reads below end_offset (exclusive; None: the log end) and about max_bytes: the last batch
        may be cut there, but with min_one_message the first is whole however large. A batch that
        ends above end_offset is left out, as Kafka does at a high watermark, or with whole_batches
        taken whole. Empty where nothing is below the bound. Raises OffsetOutOfRangeError outside
        [log_start_offset, log_end_offset], CorruptBatchError where bytes or files below the log end
        are damaged or missing, UsageError for what is no integer (bytes and end from 0 on) or no
        bool, LogClosedError. Source: Kafka's UnifiedLog.read.
        """
        self.check_open()
        return self.read_range(
            int64_of(start_offset, "start_offset", self.path),
            offset_of(max_bytes, "max_bytes", self.path),
            OFFSET_MAX if end_offset is None else offset_of(end_offset, "end_offset", self.path),
            flag_of(min_one_message, "min_one_message", self.path),
            flag_of(whole_batches, "whole_batches", self.path),
        )

    cdef LogSlice read_range(
        self, int64_t start_offset, int64_t max_bytes, int64_t end_offset, bint min_one_message,
        bint whole_batches
    ):
        cdef int64_t truncations
        while True:
            truncations = self.truncations
            try:
                found = self.read_once(
                    start_offset, max_bytes, end_offset, min_one_message, whole_batches
                )
            except (CorruptBatchError, LogTruncatedError):
                if truncations == self.truncations:
                    raise
            else:
                if truncations == self.truncations:
                    return found

    cdef LogSlice read_once(
        self, int64_t start_offset, int64_t max_bytes, int64_t end_offset, bint min_one_message,
        bint whole_batches
    ):
        cdef int64_t log_end = self.log_end_offset
        cdef int64_t bound = min(end_offset, log_end)
        cdef LogSegment segment
        cdef BatchHeader header
        cdef Py_ssize_t place
        cdef SegmentList segments
        cdef int64_t limit, length
        cdef bint incomplete
        if start_offset < self.log_start_offset or start_offset > log_end:
            raise OffsetOutOfRangeError(
                f"expected an offset in [{self.log_start_offset}, {log_end}] of {self.path}, found "
                f"{start_offset}; read from one of the two ends",
                path=self.path, offset=start_offset,
            )
        segments = self.segments
        place = segments.floor(start_offset)
        if start_offset >= bound:
            return self.empty_slice(start_offset)
        while place < segments.count:
            segment = segments.at(place)
            if segment.find(start_offset, &header):
                if header.base_offset >= bound:
                    return self.empty_slice(start_offset)
                limit = self.bound_position(segments, place, bound, whole_batches)
                incomplete = header.size_bytes > max_bytes and not min_one_message
                length = max(max_bytes, header.size_bytes) if min_one_message else max_bytes
                length = max(min(length, limit - header.position), 0)
                return LogSlice(
                    start_offset, segment.base_offset, header.position, length, incomplete,
                    segment.view(header.position, length) if length else None, segment.path,
                )
            self.check_joined(segments, place)
            place += 1
        return self.empty_slice(start_offset)

    cdef LogSlice empty_slice(self, int64_t start_offset):
        """What a read answers where there is nothing to read yet."""
        cdef SegmentList segments = self.segments
        cdef LogSegment segment = segments.at(segments.floor(start_offset))
        cdef BatchHeader header
        cdef int64_t position
        segment.open()
        position = segment.file.size_bytes
        if start_offset < self.log_end_offset and segment.find(start_offset, &header):
            position = header.position
        return LogSlice(start_offset, segment.base_offset, position, 0, False, None, segment.path)

    def offset_for_timestamp(self, timestamp):
        """(timestamp, offset, leader_epoch) of the first record at or after `timestamp` ms, or
        None.

        Only offsets from log_start_offset on count. Raises UsageError for what is no 64-bit
        integer, CorruptBatchError, LogClosedError. Source: Kafka's ListOffsets.
        """
        self.check_open()
        return self.first_from(int64_of(timestamp, "timestamp", self.path))

    cdef object first_from(self, int64_t timestamp):
        cdef int64_t truncations, remade
        while True:
            truncations, remade = self.truncations, self.guard.indexes_remade
            try:
                found = self.first_from_once(timestamp)
            except (CorruptBatchError, LogTruncatedError):
                if truncations == self.truncations:
                    raise
            else:
                # An index that was made anew may say other timestamps than those it went by.
                if truncations == self.truncations and remade == self.guard.indexes_remade:
                    return found

    cdef object first_from_once(self, int64_t timestamp):
        cdef LogSegment segment
        cdef int64_t floor = self.log_start_offset
        cdef BatchHeader header
        cdef SegmentList segments = self.segments
        cdef Py_ssize_t place
        for place in range(self.first_reaching(segments, timestamp), segments.count):
            if place:
                self.check_joined(segments, place - 1)
            segment = segments.at(place)
            if segment.time_of_roll() < timestamp:
                continue
            floor = max(self.log_start_offset, segment.time_floor(timestamp))
            while segment.find(floor, &header):
                if header.max_timestamp >= timestamp:
                    found = self.first_at(segment, &header, timestamp)
                    if found is not None:
                        return found
                floor = header.last_offset + 1
        return None

    cdef Py_ssize_t first_reaching(self, SegmentList segments, int64_t timestamp) except -1:
        """Place of the first segment that may hold a record at or after `timestamp`.

        Each sealed segment that was looked at keeps the largest timestamp up to its end: those that
        do not reach are found by halves, and only the ones behind them looked at, once.
        """
        cdef int64_t remade = self.guard.indexes_remade, ceiling = -1
        cdef Py_ssize_t low = 0, high = segments.count - 1, middle
        cdef Py_ssize_t active = high
        cdef LogSegment segment
        while low < high:
            middle = (low + high) // 2
            segment = segments.at(middle)
            if segment.ceiling_as_of == remade and segment.time_ceiling < timestamp:
                low = middle + 1
            else:
                high = middle
        if low:
            ceiling = segments.at(low - 1).time_ceiling
        while low < active and segments.at(low).ceiling_as_of != remade:
            if low:
                self.check_joined(segments, low - 1)
            segment = segments.at(low)
            ceiling = max(ceiling, segment.time_of_roll())
            segment.time_ceiling = ceiling
            segment.ceiling_as_of = remade
            if ceiling >= timestamp:
                break
            low += 1
        return low

    cdef object first_at(self, LogSegment segment, BatchHeader* header, int64_t timestamp):
        columns = record_decoder.decode_arrow(
            segment.view(header.position, header.size_bytes),
            start_offset=self.log_start_offset, columns=("offset", "timestamp"),
            include_control=True, path=segment.path, position=header.position,
        )
        stamps = columns.column("timestamp").cast("int64").to_numpy(zero_copy_only=False)
        places = (stamps >= timestamp).nonzero()[0]
        if not len(places):
            return None
        offset = columns.column("offset")[int(places[0])].as_py()
        # From the epoch cache, which is checked against the batches: a batch's own is under no CRC.
        epoch = self.epochs.epoch_for_offset(offset)
        return int(stamps[places[0]]), offset, epoch if epoch >= 0 else header.leader_epoch

    def offset_of_max_timestamp(self):
        """(timestamp, offset, leader_epoch) of the first record with the largest one, or None."""
        cdef LogSegment segment
        cdef int64_t largest = -1
        cdef SegmentList segments = self.segments
        cdef Py_ssize_t place
        self.check_open()
        for place in range(segments.count):
            segment = segments.at(place)
            segment.open_timestamp()
            self.check_joined(segments, place)
            largest = max(largest, segment.largest_timestamp)
        return self.first_from(largest) if largest >= 0 else None

    def aborted_transactions(self, start_offset, end_offset):
        """Aborted transactions that overlap [start_offset, end_offset), from the .txnindex.

        Raises UsageError for what is no integer from 0 on, LogClosedError.
        """
        cdef int64_t start = offset_of(start_offset, "start_offset", self.path)
        cdef int64_t end = offset_of(end_offset, "end_offset", self.path)
        cdef LogSegment segment
        cdef SegmentList segments = self.segments
        cdef Py_ssize_t place
        self.check_open()
        found = []
        for place in range(segments.floor(start), segments.count):
            segment = segments.at(place)
            if not segment.aborts_checked:
                self.check_aborts(segment)
            collected, complete = segment.transaction_index.collect_aborted(start, end)
            found.extend(collected)
            if complete:
                break
            self.check_joined(segments, place)
        return found

    cdef int check_aborts(self, LogSegment segment) except -1:
        """See that the segment's transaction index says what the batches say."""
        self.guard.lock_any()
        try:
            if not segment.aborts_checked:
                if not self.aborts_hold(segment):
                    self.rebuild_aborts(segment)
                segment.aborts_checked = True
        finally:
            self.guard.unlock(None)
        return 0

    cdef bint aborts_hold(self, LogSegment segment) except -1:
        """Whether each entry of the segment's transaction index names batches that say the same."""
        cdef BatchHeader header
        cdef LogSegment other
        for entry in segment.transaction_index.entries():
            if not segment.find(entry.last_offset, &header):
                return False
            if segment.dense and (
                header.control_type != CONTROL_ABORT or header.producer_id != entry.producer_id
                or header.base_offset != entry.last_offset
            ):
                return False
            if entry.first_offset <= self.log_start_offset or not segment.dense:
                continue
            other = self.segments.at(self.floor_place(entry.first_offset))
            if (
                not other.find(entry.first_offset, &header)
                or header.base_offset != entry.first_offset
                or header.producer_id != entry.producer_id
            ):
                return False
        return True

    cdef int rebuild_aborts(self, LogSegment segment) except -1:
        """Make the segment's transaction index anew; the writing subclass carries it out."""
        raise NotImplementedError("ReadableLog writes no files")
