# What a log knows of its idempotent producers, and the snapshots of that.

from libc.stdint cimport int64_t

from replog._native.batch_set cimport BatchSet
from replog._native.log_segment cimport LogSegment
from replog._native.log_state cimport LogState
from replog._native.producer_state cimport ProducerState
from replog._native.snapshot_files cimport SnapshotFiles

cdef class LogProducers:
    cdef LogState state
    cdef SnapshotFiles files
    cdef int64_t snapshot_offset       # of the newest snapshot
    cdef int64_t bytes_since_snapshot
    cdef int64_t checked_ms            # when producers that are idle were last looked for

    cdef int note(self, BatchSet batches, LogSegment active, int64_t end_offset) except -1
    cdef bint near_snapshot(self, int64_t more_bytes) noexcept
    cdef int count_bytes(self, int64_t written) except -1
    # Forget idle producers, as often as Kafka does; now: -1 for the clock's.
    cdef int expire(self, int64_t now) except -1
    cdef int take_snapshot(self) except -1
    cdef int take_snapshot_at(self, int64_t offset, ProducerState producers) except -1
    cdef int drop_snapshots(self, int64_t above, object keep=*) except -1
    cdef int replay(self, int64_t end_offset, int64_t now) except -1
    cdef int restart(self, int64_t offset) except -1
    cdef object aborted_in(self, LogSegment segment)
