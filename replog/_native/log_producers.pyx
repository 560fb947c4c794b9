# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""What a log knows of its idempotent producers: what the batches tell, made anew after a cut.

A snapshot only shortens a replay; where none can be written the records themselves are safe. They
are taken at rolls, and inside a long segment as often as keeps a replay short.
"""

from libc.stdint cimport int64_t

from replog._native.batch_set cimport BatchSet
from replog._native.log_segment cimport LogSegment
from replog._native.log_state cimport LogState
from replog._native.producer_state cimport ProducerState
from replog._native.record_batch cimport BatchHeader
from replog._native.segment_list cimport SegmentList
from replog._native.snapshot_files cimport SnapshotFiles

from replog.errors import NoSpaceError, OutOfDescriptorsError

from replog._native.record_batch import scan

# A truncation replays at most this much of the log, however long its segments are.
SNAPSHOT_INTERVAL_BYTES = 64 * 1024 * 1024
cdef int64_t SNAPSHOT_BYTES = SNAPSHOT_INTERVAL_BYTES
# How often idle producers are looked for: Kafka's producer.id.expiration.check.interval.ms.
cdef int64_t CHECK_MS = 600_000


cdef class LogProducers:
    """See the module. The caller holds the writer's lock."""

    def __init__(self, LogState state not None):
        self.state = state
        self.files = SnapshotFiles(state.path)
        self.checked_ms = state.now(None)

    cdef int note(self, BatchSet batches, LogSegment active, int64_t end_offset) except -1:
        """Apply the batches of a set; aborted transactions are kept with the segment."""
        cdef ProducerState producers = self.state.producers
        cdef BatchHeader* header
        cdef int64_t number
        for number in range(batches.count):
            header = &batches.batches[number].header
            if header.producer_id < 0:
                continue
            completed = producers.update(header)
            if completed is not None and completed.aborted:
                active.transaction_index.append(completed)
        producers.end_offset = end_offset
        return 0

    cdef bint near_snapshot(self, int64_t more_bytes) noexcept:
        """Whether `more_bytes` make the next snapshot due."""
        return self.bytes_since_snapshot + more_bytes >= SNAPSHOT_BYTES

    cdef int count_bytes(self, int64_t written) except -1:
        """Count what was written, and take a snapshot where it is due."""
        self.bytes_since_snapshot += written
        if self.bytes_since_snapshot >= SNAPSHOT_BYTES and self.state.producers.producer_count:
            self.take_snapshot()
        return 0

    cdef int expire(self, int64_t now) except -1:
        now = self.state.clock() if now < 0 else now
        if not 0 <= now - self.checked_ms < CHECK_MS:
            self.checked_ms = now
            self.state.producers.remove_expired(now)
        return 0

    cdef int take_snapshot(self) except -1:
        """Write the producers' state up to log_end_offset, unless nothing came since the last."""
        self.take_snapshot_at(self.state.log_end_offset, self.state.producers)
        self.bytes_since_snapshot = 0
        return 0

    cdef int take_snapshot_at(self, int64_t offset, ProducerState producers) except -1:
        """Write the producers' state, which is that of `offset`, unless there is one."""
        if offset > self.snapshot_offset:
            try:
                self.files.write(offset, producers.to_snapshot())
            except (NoSpaceError, OutOfDescriptorsError):
                return 0
            self.snapshot_offset = offset
        return 0

    cdef int drop_snapshots(self, int64_t above, object keep=()) except -1:
        """Remove producer snapshots behind `above` (-1: none of these), less those to keep.

        One at the log start goes, too: it speaks of producers whose records are all gone, and Kafka
        forgets them.
        """
        if self.files.remove(above=above, below=self.state.log_start_offset + 1, keep=keep):
            # One that speaks of what was cut must not come back beside other records.
            self.state.names_unsynced = True
        return 0

    cdef int replay(self, int64_t end_offset, int64_t now) except -1:
        """Make the producers' state of `end_offset` anew."""
        cdef LogState state = self.state
        cdef SegmentList segments = state.segments
        cdef int64_t offset
        cdef LogSegment segment
        cdef Py_ssize_t place
        cdef ProducerState producers = state.producers.emptied()
        offset = self.files.load_latest(producers, state.log_start_offset, end_offset, now)
        if offset < 0:
            offset = state.log_start_offset
        self.snapshot_offset = offset
        producers.end_offset = offset
        if offset < end_offset:
            for place in range(segments.floor(offset), segments.count):
                segment = segments.at(place)
                if segment.base_offset >= end_offset:
                    break  # recovery has not checked these yet
                if place + 2 >= segments.count:
                    self.take_snapshot_at(segment.base_offset, producers)
                segment.replay(producers, offset, end_offset)
                if place + 1 < segments.count and segments.base(place + 1) <= end_offset:
                    state.check_joined(segments, place)
        producers.end_offset = end_offset
        producers.remove_expired(now)
        producers.release_below(state.committed_end())
        # As a whole: a reader asks at any time up to where transactions have ended.
        state.producers = producers
        self.bytes_since_snapshot = 0
        return 0

    cdef int restart(self, int64_t offset) except -1:
        """Know nobody, in a log that is empty and goes on at `offset`."""
        self.state.producers = self.state.producers.emptied()
        self.state.producers.end_offset = offset
        self.drop_snapshots(0)
        self.snapshot_offset = offset
        return 0

    cdef object aborted_in(self, LogSegment segment):
        """The aborted transactions that end in a segment, as the batches tell."""
        cdef LogState state = self.state
        cdef SegmentList segments = state.segments
        cdef LogSegment other
        cdef Py_ssize_t place
        producers = ProducerState(state.config.producer_id_expiration_ms)
        # At time 0 no producer of the snapshot has expired.
        offset = self.files.load_latest(producers, state.log_start_offset, segment.base_offset, 0)
        start = max(offset, state.log_start_offset)
        completed = []
        for place in range(segments.floor(start), segments.count):
            other = segments.at(place)
            if other.base_offset > segment.base_offset or not other.size_bytes:
                break
            headers = scan(other.view(0, other.size_bytes), check_crc=False).headers
            completed = producers.replay(headers[headers["base_offset"] >= start])
        return [entry for entry in completed if entry.aborted]
