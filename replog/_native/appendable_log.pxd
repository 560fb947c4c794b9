# The append side of a log: one writer's lock, offsets, epochs, producers, rolls.

from libc.stdint cimport int32_t, int64_t, uint8_t

from replog._native.append_result cimport AppendResult
from replog._native.batch_set cimport BatchSet
from replog._native.leader_epoch_cache cimport LeaderEpochCache
from replog._native.log_segment cimport LogSegment
from replog._native.producer_state cimport ProducerState
from replog._native.readable_log cimport ReadableLog
from replog._native.retired_files cimport RetiredFiles
from replog._native.snapshot_files cimport SnapshotFiles

cdef class AppendableLog(ReadableLog):
    cdef readonly object config
    cdef readonly object keeper        # of what outlives a crash beside the segments
    cdef object clock                  # () -> ms since the epoch
    cdef object jitter                 # (segment_jitter_ms) -> ms, drawn once a segment
    cdef BatchSet batches
    cdef BatchSet filler               # of one empty batch, for fill_hole()
    cdef int64_t recovered_to          # the recovery point: exclusive, known flushed
    cdef int64_t durable_end           # exclusive end of the records synced by commit()
    cdef readonly int32_t written_epoch  # of the last batch, entry or not; -1: none
    cdef int64_t snapshot_offset       # of the newest producer snapshot
    cdef int64_t bytes_since_snapshot
    cdef int64_t producers_checked_ms  # when producers that are idle were last looked for
    cdef bint epochs_owed              # the file may say more than `epochs`, or less
    cdef bint names_unsynced           # a segment was created or renamed since the last fsync_dir
    cdef bint tail_unsynced            # a process that died may have cut it, and synced no cut
    cdef RetiredFiles retired
    cdef SnapshotFiles snapshots

    cdef int64_t segment_bytes
    cdef int64_t segment_ms
    cdef int64_t segment_jitter_now_ms
    cdef int64_t max_message_bytes
    cdef int64_t before_max_ms
    cdef int64_t after_max_ms
    cdef int64_t decompressed_bytes_max
    cdef int64_t flush_messages
    cdef int64_t flush_ms
    cdef int64_t flushed_at_ms
    cdef bint log_append_time
    cdef bint commit_each
    cdef int target_codec              # -1: as the producer sent it

    cdef int64_t now(self, object now_ms) except? -1
    cdef AppendResult append_leader_locked(
        self, const uint8_t* bytes, int64_t length, int32_t leader_epoch, int64_t now,
        bint coordinator
    )
    cdef int write(self, int64_t now) except -1
    cdef int fill_hole(self) except -1
    # Forget idle producers, as often as Kafka does; now: -1 for the clock's.
    cdef int expire_producers(self, int64_t now) except -1
    cdef int note_epochs(self, LeaderEpochCache before) except -1
    cdef int restore_epochs(self, LeaderEpochCache before) except -1
    cdef int write_set(self) except -1
    cdef int take_back(self, LogSegment active, int64_t position, int64_t offset) except -1
    cdef int undo_to(self, int64_t offset, LeaderEpochCache epochs, object error) except -1
    cdef int sync_as_configured(self, int64_t end_offset, int64_t now) except -1
    cdef int write_epochs_or(self, LeaderEpochCache before) except -1
    cdef int note_producers(self, LogSegment active, int64_t end_offset) except -1
    cdef int take_snapshot(self) except -1
    cdef int take_snapshot_at(self, int64_t offset, ProducerState producers) except -1
    cdef int roll_locked(self, int64_t base_offset, int64_t now) except -1
    cdef int maybe_roll(self, int64_t first_offset, int64_t last_offset, int64_t now) except -1
    # What the maintaining subclass carries out: drop everything and go on, empty, at `offset`; keep
    # what is below `offset`; make the producers' state of `offset` anew.
    cdef int restart_locked(self, int64_t offset, int64_t log_start_offset) except -1
    cdef int truncate_locked(self, int64_t offset) except -1
    cdef int replay_producers(self, int64_t end_offset, int64_t now) except -1
    cdef LogSegment new_segment(self, int64_t base_offset, int64_t now)
    # Likewise, where no leftover can be.
    cdef LogSegment make_segment(self, int64_t base_offset, int64_t now)
