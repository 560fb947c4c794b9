# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Where an offset or a timestamp is, and views of the bytes there. How a reader goes without a lock
is told in `log_state`. A LogSlice pins its range of the mapping for as long as it, or a buffer of
it, lives.
"""

from libc.stdint cimport int64_t

from replog._native.log_segment cimport LogSegment
from replog._native.log_slice cimport LogSlice
from replog._native.log_state cimport LogState
from replog._native.record_batch cimport BatchHeader
from replog._native.segment_list cimport SegmentList

from replog.errors import CorruptBatchError, LogTruncatedError, OffsetOutOfRangeError

from replog._native import record_decoder


cdef class LogLookup:
    """See the module. Any thread may ask."""

    def __init__(self, LogState state not None):
        self.state = state

    cdef int64_t stable_end(self) except -1:
        """Exclusive end of what read_committed may read."""
        cdef LogState state = self.state
        cdef int64_t bound = state.committed_end()
        unstable = state.producers.first_unstable_offset(bound)
        if unstable is None:
            return bound
        return min(bound, self.next_there(max(unstable, state.log_start_offset)))

    cdef int64_t next_there(self, int64_t offset) except -1:
        """The first offset from `offset` on that compaction has not taken; the log end if none.

        What opened a transaction may be gone: the marker that let compaction take it was cut.
        """
        cdef SegmentList segments = self.state.segments
        cdef LogSegment segment
        cdef BatchHeader header
        cdef Py_ssize_t place
        for place in range(segments.floor(offset), segments.count):
            segment = segments.at(place)
            if segment.dense and segment.base_offset <= offset:
                return offset
            if segment.find(offset, &header):
                return max(offset, header.base_offset)
        return self.state.log_end_offset

    cdef int64_t bound_position(
        self, SegmentList segments, Py_ssize_t place, int64_t bound, bint whole
    ) except -1:
        """Byte place in segments[place] that a read below `bound` may go up to."""
        cdef LogSegment segment = segments.at(place)
        cdef BatchHeader header
        segment.open()
        if bound >= self.state.log_end_offset or (
            place + 1 < segments.count and bound >= segments.base(place + 1)
        ):
            return segment.file.size_bytes
        if not segment.find(bound, &header):
            return segment.file.size_bytes
        if whole and header.base_offset < bound:
            return header.position + header.size_bytes
        return header.position

    cdef LogSlice read(
        self, int64_t start_offset, int64_t max_bytes, int64_t end_offset, bint min_one_message,
        bint whole_batches
    ):
        cdef int64_t truncations
        while True:
            truncations = self.state.truncations
            try:
                found = self.read_once(
                    start_offset, max_bytes, end_offset, min_one_message, whole_batches
                )
            except (CorruptBatchError, LogTruncatedError):
                if truncations == self.state.truncations:
                    raise
            else:
                if truncations == self.state.truncations:
                    return found

    cdef LogSlice read_once(
        self, int64_t start_offset, int64_t max_bytes, int64_t end_offset, bint min_one_message,
        bint whole_batches
    ):
        cdef LogState state = self.state
        cdef int64_t log_end = state.log_end_offset
        cdef int64_t bound = min(end_offset, log_end)
        cdef LogSegment segment
        cdef BatchHeader header
        cdef Py_ssize_t place
        cdef SegmentList segments
        cdef int64_t limit, length
        cdef bint incomplete
        if start_offset < state.log_start_offset or start_offset > log_end:
            raise OffsetOutOfRangeError(
                f"expected an offset in [{state.log_start_offset}, {log_end}] of {state.path}, "
                f"found {start_offset}; read from one of the two ends",
                path=state.path, offset=start_offset,
            )
        segments = state.segments
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
            state.check_joined(segments, place)
            place += 1
        return self.empty_slice(start_offset)

    cdef LogSlice empty_slice(self, int64_t start_offset):
        """What a read answers where there is nothing to read yet."""
        cdef SegmentList segments = self.state.segments
        cdef LogSegment segment = segments.at(segments.floor(start_offset))
        cdef BatchHeader header
        cdef int64_t position
        segment.open()
        position = segment.file.size_bytes
        if start_offset < self.state.log_end_offset and segment.find(start_offset, &header):
            position = header.position
        return LogSlice(start_offset, segment.base_offset, position, 0, False, None, segment.path)

    cdef object first_from(self, int64_t timestamp):
        cdef LogState state = self.state
        cdef int64_t truncations, remade
        while True:
            truncations, remade = state.truncations, state.guard.indexes_remade
            try:
                found = self.first_from_once(timestamp)
            except (CorruptBatchError, LogTruncatedError):
                if truncations == state.truncations:
                    raise
            else:
                # An index that was made anew may say other timestamps than those it went by.
                if truncations == state.truncations and remade == state.guard.indexes_remade:
                    return found

    cdef object first_from_once(self, int64_t timestamp):
        cdef LogSegment segment
        cdef int64_t floor = self.state.log_start_offset
        cdef BatchHeader header
        cdef SegmentList segments = self.state.segments
        cdef Py_ssize_t place
        for place in range(self.first_reaching(segments, timestamp), segments.count):
            if place:
                self.state.check_joined(segments, place - 1)
            segment = segments.at(place)
            if segment.time_of_roll() < timestamp:
                continue
            floor = max(self.state.log_start_offset, segment.time_floor(timestamp))
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
        cdef int64_t remade = self.state.guard.indexes_remade, ceiling = -1
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
                self.state.check_joined(segments, low - 1)
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
            start_offset=self.state.log_start_offset, columns=("offset", "timestamp"),
            include_control=True, path=segment.path, position=header.position,
        )
        stamps = columns.column("timestamp").cast("int64").to_numpy(zero_copy_only=False)
        places = (stamps >= timestamp).nonzero()[0]
        if not len(places):
            return None
        offset = columns.column("offset")[int(places[0])].as_py()
        # From the epoch cache, which is checked against the batches: a batch's own is under no CRC.
        epoch = self.state.epochs.epoch_for_offset(offset)
        return int(stamps[places[0]]), offset, epoch if epoch >= 0 else header.leader_epoch

    cdef object first_of_largest(self):
        """(timestamp, offset, leader_epoch) of the first record with the largest one, or None."""
        cdef LogSegment segment
        cdef int64_t largest = -1
        cdef SegmentList segments = self.state.segments
        cdef Py_ssize_t place
        for place in range(segments.count):
            segment = segments.at(place)
            segment.open_timestamp()
            self.state.check_joined(segments, place)
            largest = max(largest, segment.largest_timestamp)
        return self.first_from(largest) if largest >= 0 else None
