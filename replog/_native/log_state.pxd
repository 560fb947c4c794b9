# What is known of a log now: its segments and the offsets that bound them.

from libc.stdint cimport int32_t, int64_t

from replog._native.leader_epoch_cache cimport LeaderEpochCache
from replog._native.log_guard cimport LogGuard
from replog._native.producer_state cimport ProducerState
from replog._native.segment_list cimport SegmentList

cdef class LogState:
    cdef readonly str path
    cdef readonly object config
    cdef readonly object keeper             # of what outlives a crash beside the segments
    cdef object clock                       # () -> ms since the epoch
    cdef LogGuard guard                     # its locks, and whether it is closed or failed
    cdef readonly SegmentList segments      # replaced whole: a reader keeps the one it took
    # Invariant: log_start_offset <= last stable offset <= high watermark <= log_end_offset.
    cdef readonly int64_t log_start_offset
    cdef readonly int64_t log_end_offset    # moved last in an append, first in a truncation
    cdef int64_t watermark                  # -1: nobody set it, it follows log_end_offset
    cdef int64_t unit_start                 # of a unit that is being appended part by part; -1
    cdef int64_t dense_end                  # of the last batch; lower after a cut inside one
    cdef int64_t truncations                # how often the end has moved back
    cdef int64_t recovered_to               # the recovery point: exclusive, known flushed
    cdef int64_t durable_end                # exclusive end of the records that a commit has synced
    cdef readonly int32_t written_epoch     # of the last batch, entry or not; -1: none
    cdef bint compacted                     # offsets may have holes
    cdef bint names_unsynced  # a segment was created or renamed since the directory was synced
    cdef bint tail_unsynced   # a process that died may have cut it, and synced no cut
    cdef ProducerState producers            # replaced whole, as `segments` is
    cdef LeaderEpochCache epochs

    cdef int check_open(self) except -1
    cdef int64_t now(self, object now_ms) except? -1
    # Exclusive: offsets below it are committed.
    cdef int64_t committed_end(self) noexcept
    cdef int64_t move_watermark(self, int64_t offset) except -1
    # Place of the last segment with base_offset <= offset; 0 if there is none.
    cdef Py_ssize_t floor_place(self, int64_t offset) except -1
    cdef int check_joined(self, SegmentList segments, Py_ssize_t place) except -1
    # Bytes of all data files together.
    cdef int64_t size_bytes(self) except -1
    cdef int sync_names(self) except -1
