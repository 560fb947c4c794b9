# The end of a log moves on.

from libc.stdint cimport int32_t, int64_t, uint8_t

from replog._native.append_result cimport AppendResult
from replog._native.batch_set cimport BatchSet
from replog._native.epoch_file cimport EpochFile
from replog._native.leader_epoch_cache cimport LeaderEpochCache
from replog._native.log_cut cimport LogCut
from replog._native.log_producers cimport LogProducers
from replog._native.log_segment cimport LogSegment
from replog._native.log_state cimport LogState
from replog._native.log_sync cimport LogSync
from replog._native.segment_maker cimport SegmentMaker

cdef class LogWriter:
    cdef LogState state
    cdef SegmentMaker maker
    cdef EpochFile epoch_file
    cdef LogProducers producers
    cdef LogSync sync
    cdef LogCut cut
    cdef BatchSet batches              # what is being appended
    cdef BatchSet filler               # of one empty batch, for fill_hole()

    cdef int64_t segment_bytes
    cdef int64_t max_message_bytes
    cdef int64_t before_max_ms
    cdef int64_t after_max_ms
    cdef int64_t decompressed_bytes_max
    cdef bint log_append_time
    cdef int target_codec              # -1: as the producer sent it

    cdef AppendResult append(
        self, object given, object leader_epoch, object now_ms, object coordinator
    )
    cdef AppendResult append_parts(self, object parts, int32_t leader_epoch, object now_ms)
    cdef AppendResult append_locked(
        self, const uint8_t* bytes, int64_t length, int32_t leader_epoch, int64_t now,
        bint coordinator
    )
    # Write the loaded set, as it is.
    cdef int write(self, int64_t now) except -1
    cdef int undo_to(self, int64_t offset, LeaderEpochCache epochs, object error) except -1
    cdef int roll(self, int64_t base_offset, int64_t now) except -1
    cdef int fill_hole(self) except -1
    cdef int write_set(self) except -1
    cdef int take_back(self, LogSegment active, int64_t position, int64_t offset) except -1
    cdef int maybe_roll(self, int64_t first_offset, int64_t last_offset, int64_t now) except -1
