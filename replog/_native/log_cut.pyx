# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""The end of a log moves back: to an offset, or to an empty log that begins elsewhere.

to: recovery point lowered, later segments renamed from the last one on, directory synced, cut,
    synced, epochs. A crash in between: more to recover; never an old tail behind new records.
restart: recovery point lowered, all segments renamed from the last one on, directory synced, the
    new one made, directory synced. A crash in between: a shorter log, or an empty one.
"""

from libc.stdint cimport int64_t

from replog._native.epoch_file cimport EpochFile
from replog._native.log_producers cimport LogProducers
from replog._native.log_segment cimport LogSegment
from replog._native.log_start cimport LogStart
from replog._native.log_state cimport LogState
from replog._native.log_sync cimport LogSync
from replog._native.record_batch cimport BatchHeader
from replog._native.retired_files cimport RetiredFiles
from replog._native.segment_list cimport SegmentList
from replog._native.segment_maker cimport SegmentMaker

from replog._native import mapped_file


cdef class LogCut:
    """See the module. The caller holds the writer's lock."""

    def __init__(
        self, LogState state not None, SegmentMaker maker not None, EpochFile epoch_file not None,
        LogProducers producers not None, LogSync sync not None, LogStart start not None,
        RetiredFiles retired not None,
    ):
        self.state = state
        self.maker = maker
        self.epoch_file = epoch_file
        self.producers = producers
        self.sync = sync
        self.start = start
        self.retired = retired

    cdef bint to(self, int64_t offset) except -1:
        """Keep what is below `offset`; False if nothing is behind it. Durable on return."""
        cdef LogState state = self.state
        if offset >= state.log_end_offset:
            before = state.epochs.copy()
            if state.epochs.truncate_from_end(state.log_end_offset):
                self.epoch_file.write_or(before)
            return False
        if offset < state.segments.base(0):
            self.restart(offset, offset)
        else:
            self.within(offset)
        return True

    cdef int within(self, int64_t offset) except -1:
        """Keep what is below `offset`, of a log that has a segment there."""
        cdef LogState state = self.state
        cdef Py_ssize_t place = state.floor_place(offset)
        cdef LogSegment segment = state.segments.at(place)
        cdef BatchHeader header
        cdef int64_t now = state.now(None), kept_end, synced = state.recovered_to
        cdef int64_t start_offset = state.log_start_offset
        cdef bint inside = segment.find(offset, &header)
        self.sync.sync_tail()
        if not inside:
            kept_end = min(offset, segment.next_offset())
        else:  # a compacted log may have a gap before it: the end is known once this is gone
            kept_end = header.base_offset if segment.dense else segment.base_offset
        self.start.settle()
        # Lowered here first: another thread that persists it meanwhile must not raise it again. To
        # the end of what is kept, since that is where a crashed log is found to end.
        state.recovered_to = min(state.recovered_to, kept_end)
        state.keeper.lower_recovery_point(kept_end)
        # From here on half a cut: bytes behind the log's end would come between the next batches.
        state.guard.begin_change()
        state.log_start_offset = min(offset, start_offset)
        # Readers stop at the log end: it moves before any byte goes.
        state.log_end_offset = offset
        state.watermark = min(state.watermark, offset)
        state.durable_end = min(state.durable_end, offset)
        state.truncations += 1
        self.drop_from(place + 1, now)
        state.dense_end = kept_end
        if inside:
            segment.cut(header.position, offset)
            # Synced before anything follows: an old tail must not come back behind new records.
            segment.flush_records()
            kept_end = state.dense_end = segment.next_offset()
            state.recovered_to = min(synced, kept_end)
        if kept_end < offset and segment.size_bytes == 0 and segment.base_offset == offset:
            state.dense_end = offset
        self.find_written_epoch()
        self.producers.drop_snapshots(offset)
        self.producers.replay(offset, now)
        self.producers.take_snapshot()
        if state.epochs.truncate_from_end(offset):
            self.epoch_file.write_fewer()
        if offset < start_offset:
            # Behind the cut: without it, deleted records must not come back below the old start.
            state.keeper.write_log_start(offset)
        state.guard.end_change()
        return 0

    cdef int find_written_epoch(self) except -1:
        """Read the epoch of the last batch there is, also behind a gap that compaction left."""
        cdef LogState state = self.state
        cdef BatchHeader last
        cdef LogSegment segment
        cdef Py_ssize_t place
        state.written_epoch = -1
        for place in range(state.floor_place(state.dense_end - 1), -1, -1):
            segment = state.segments.at(place)
            if segment.find(min(state.dense_end, segment.next_offset()) - 1, &last):
                state.written_epoch = last.leader_epoch
                return 0
        return 0

    cdef int drop_from(self, Py_ssize_t place, int64_t now) except -1:
        """Rename the segments from `place` on, the last one first, so that no hole can appear."""
        cdef LogState state = self.state
        cdef LogSegment segment
        gone = state.segments[place:]
        if not gone:
            return 0
        state.segments = state.segments.first(place)
        for segment in reversed(gone):
            self.retired.retire(segment.prefix, now)
        mapped_file.fsync_dir(state.path)
        return 0

    cdef int restart(self, int64_t offset, int64_t log_start_offset) except -1:
        """Drop everything and go on, empty, at `offset`; durable on return."""
        cdef LogState state = self.state
        cdef int64_t now = state.now(None)
        cdef LogSegment segment
        # 0: until the new segment is there, any number of the old ones may be left.
        state.recovered_to = 0
        state.keeper.lower_recovery_point(0)
        state.guard.begin_change()
        state.truncations += 1
        state.log_end_offset = min(offset, state.log_end_offset)
        gone = state.segments
        for segment in reversed(gone):
            self.retired.retire(segment.prefix, now)
        # Or it could outlive a crash beside some of them, as if compaction had been in between.
        mapped_file.fsync_dir(state.path)
        state.segments = SegmentList((self.maker.replace(offset, now),))
        state.log_start_offset = log_start_offset
        state.log_end_offset = offset
        state.dense_end = offset
        state.written_epoch = -1
        state.durable_end = offset
        if state.watermark >= 0:
            state.watermark = offset
        state.epochs.clear()
        # Replacing the epoch file syncs the directory, and with it the names of the segments.
        state.keeper.write_epochs(state)
        state.recovered_to = offset
        state.names_unsynced = False
        self.producers.restart(offset)
        state.keeper.write_log_start(log_start_offset)
        state.guard.end_change()
        return 0
