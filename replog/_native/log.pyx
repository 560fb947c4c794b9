# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""The whole log of one partition: flush, truncation, retention, close.

flush: data, indexes, directory, then the recovery point. A crash in between: more to recover. The
    disk is waited for without the writer's lock: what a cut overtook is synced again.
truncate: recovery point lowered, later segments renamed from the last one on, directory synced,
    cut, synced, epochs. A crash in between: more to recover; never an old tail behind new records.
start at: recovery point lowered, all segments renamed from the last one on, directory synced, the
    new one made, directory synced. A crash in between: a shorter log, or an empty one.
retention: log start, then segments renamed from the first one on. A crash or an error in between:
    segments below the log start, dropped next time.
close: flush with closing time entries and a producer snapshot. A crash or an error in between: an
    unclean stop. The log is closed in any case.
"""

from libc.stdint cimport int64_t

from replog._native.arguments cimport flag_of, integer_of, offset_of
from replog._native.follower_log cimport FollowerLog
from replog._native.log_segment cimport LogSegment
from replog._native.mapped_file cimport MappedFile
from replog._native.producer_state cimport ProducerState
from replog._native.record_batch cimport BatchHeader
from replog._native.segment_list cimport SegmentList

from replog.errors import (
    LogClosedError, LogFailedError, LogTruncatedError, NoSpaceError, OffsetOutOfRangeError,
    OutOfDescriptorsError,
)

from replog._native import mapped_file
from replog._native.record_batch import scan

cdef class Log(FollowerLog):
    """See the module. Built by `log_recovery.load`, which fills in segments and offsets."""

    cdef bint sync_once(self, bint records_only) except -1:
        """Sync what there is now, beside appends; False where a cut came between, to do it again.

        The caller holds the guard's sync_lock. An error of the disk itself fails the log: after a
        failed sync the kernel may have dropped the pages, and nothing is known of them.
        """
        cdef LogSegment segment
        cdef int64_t truncations = 0, target = 0, known = 0
        cdef bint names = False
        with self.guard:
            known = self.durable_end if records_only else self.recovered_to
            # After a cut inside a batch the log is found to end before log_end_offset.
            target = self.log_end_offset
            if not records_only:
                target = min(target, self.dense_end)
            if target <= known and not self.names_unsynced:
                return True
            truncations = self.truncations
            # A segment sealed or cut exactly at the known end has index bytes still to sync.
            noted = [
                (segment, file) for segment in self.segments[self.floor_place(max(known - 1, 0)):]
                for file in segment.written_files(records_only)
            ]
            names = self.names_unsynced
            self.names_unsynced = False
        try:
            for segment, file in noted:
                self.sync_file(segment, file, truncations)
            if names:
                mapped_file.fsync_dir(self.path)
            names = False
            with self.guard:
                if truncations != self.truncations:
                    return False
                self.durable_end = max(self.durable_end, target)
                if not records_only:
                    self.recovered_to = max(self.recovered_to, target)
            if not records_only and target > known:
                # A truncation from here on lowers it again, on disk behind this.
                self.keeper.note_recovery_point(self, target)
        except LogFailedError:
            self.guard.fail()
            raise
        finally:
            self.names_unsynced = self.names_unsynced or names
        return True

    cdef int write(self, int64_t now) except -1:
        if self.tail_unsynced:
            self.sync_tail()
        return FollowerLog.write(self, now)

    cdef int roll_locked(self, int64_t base_offset, int64_t now) except -1:
        if self.tail_unsynced:  # it is the tail no more behind this
            self.sync_tail()
        return FollowerLog.roll_locked(self, base_offset, now)

    cdef int sync_tail(self) except -1:
        """Before anything follows the tail of a process that died: it may have been cutting it, and
        what it had cut must not come back beside, or behind, other records.
        """
        (<LogSegment> self.segments[len(self.segments) - 1]).flush_records()
        mapped_file.fsync_dir(self.path)
        self.tail_unsynced = self.names_unsynced = False

    cdef int sync_file(self, LogSegment segment, MappedFile file, int64_t truncations) except -1:
        """Sync one file of a segment, unless retention or a cut took it away meanwhile."""
        try:
            file.flush()
        except (LogTruncatedError, LogClosedError):
            if truncations == self.truncations and segment in self.segments:
                raise
        return 0

    def commit(self, end_offset):
        """Return once every record below end_offset is synced; callers that wait share one sync.

        Raises UsageError for what is no integer from 0 on, LogFailedError, LogClosedError.
        """
        cdef int64_t wanted = offset_of(end_offset, "end_offset", self.path)
        if self.durable_end >= wanted:
            return
        self.guard.check()
        self.guard.sync_lock.acquire()
        try:
            while self.durable_end < wanted and not self.sync_once(True):
                pass
        finally:
            self.guard.sync_lock.release()

    def flush(self):
        """Sync everything written so far, then move the recovery point to it. Returns it.

        Durable on return. Raises NoSpaceError (an index could not be written; the next flush tries
        again), LogClosedError, LogFailedError if a sync fails, after which the log takes no work.
        """
        self.guard.check()
        self.guard.sync_lock.acquire()
        try:
            while not self.sync_once(False):
                pass
            return self.recovery_point
        finally:
            self.guard.sync_lock.release()

    def checkpoint(self):
        """Flush, and persist the recovery point now; durable on return.

        Raises as flush() does.
        """
        self.flush()
        with self.guard:
            self.keeper.write_recovery_point(self, self.recovered_to)

    def truncate_to(self, offset):
        """Keep offsets below `offset`; the whole batch that holds it goes. True if records went.

        log_end_offset becomes `offset`. Views of cut bytes stay readable. Durable on
        return. The cost does not depend on the size of the log. Raises UsageError for what is no
        integer from 0 on, NoSpaceError, LogFailedError, LogClosedError.
        """
        cdef int64_t cut = offset_of(offset, "offset", self.path)
        with self.guard:
            if cut >= self.log_end_offset:
                before = self.epochs.copy()
                if self.epochs.truncate_from_end(self.log_end_offset):
                    self.write_epochs_or(before)
                return False
            if cut < self.segments.base(0):
                self.restart_locked(cut, cut)
            else:
                self.truncate_locked(cut)
            return True

    cdef int truncate_locked(self, int64_t offset) except -1:
        cdef Py_ssize_t place = self.floor_place(offset)
        cdef LogSegment segment = self.segments.at(place)
        cdef BatchHeader header
        cdef int64_t now = self.now(None), kept_end, synced = self.recovered_to
        cdef int64_t start_offset = self.log_start_offset
        cdef bint inside = segment.find(offset, &header)
        if self.tail_unsynced:
            self.sync_tail()
        if not inside:
            kept_end = min(offset, segment.next_offset())
        else:  # a compacted log may have a gap before it: the end is known once this is gone
            kept_end = header.base_offset if segment.dense else segment.base_offset
        if self.start_tried > start_offset:
            # It may be on the disk, where it would end what is kept.
            self.keeper.write_log_start(start_offset)
            self.start_tried = start_offset
        # Lowered here first: another thread that persists it meanwhile must not raise it again. To
        # the end of what is kept, since that is where a crashed log is found to end.
        self.recovered_to = min(self.recovered_to, kept_end)
        self.keeper.lower_recovery_point(kept_end)
        # From here on half a cut: bytes behind the log's end would come between the next batches.
        self.guard.begin_change()
        self.log_start_offset = min(offset, start_offset)
        # Readers stop at the log end: it moves before any byte goes.
        self.log_end_offset = offset
        self.watermark = min(self.watermark, offset)
        self.durable_end = min(self.durable_end, offset)
        self.truncations += 1
        self.drop_from(place + 1, now)
        self.dense_end = kept_end
        if inside:
            segment.cut(header.position, offset)
            # Synced before anything follows: an old tail must not come back behind new records.
            segment.flush_records()
            kept_end = self.dense_end = segment.next_offset()
            self.recovered_to = min(synced, kept_end)
        if kept_end < offset and segment.size_bytes == 0 and segment.base_offset == offset:
            self.dense_end = offset
        self.find_written_epoch()
        self.drop_snapshots(offset)
        self.replay_producers(offset, now)
        self.take_snapshot()
        if self.epochs.truncate_from_end(offset):
            self.write_fewer_epochs()
        if offset < start_offset:
            # Behind the cut: without it, deleted records must not come back below the old start.
            self.keeper.write_log_start(offset)
        self.guard.end_change()
        return 0

    cdef int write_fewer_epochs(self) except -1:
        """Write the epochs, now or before the next batch: the next open drops what is too much."""
        try:
            self.write_epochs_or(self.epochs.copy())
        except (NoSpaceError, OutOfDescriptorsError):
            pass

    cdef int find_written_epoch(self) except -1:
        """Read the epoch of the last batch there is, also behind a gap that compaction left."""
        cdef BatchHeader last
        cdef LogSegment segment
        cdef Py_ssize_t place
        self.written_epoch = -1
        for place in range(self.floor_place(self.dense_end - 1), -1, -1):
            segment = self.segments.at(place)
            if segment.find(min(self.dense_end, segment.next_offset()) - 1, &last):
                self.written_epoch = last.leader_epoch
                return 0
        return 0

    cdef int drop_from(self, Py_ssize_t place, int64_t now) except -1:
        """Rename the segments from `place` on, the last one first, so that no hole can appear."""
        cdef LogSegment segment
        gone = self.segments[place:]
        if not gone:
            return 0
        self.segments = self.segments.first(place)
        for segment in reversed(gone):
            self.retired.retire(segment.prefix, now)
        mapped_file.fsync_dir(self.path)
        return 0

    def unlink_retired(self, *, now_ms=None):
        """Unlink renamed files whose delay is over; mappings of them stay readable."""
        with self.guard:
            self.retired.unlink_due(self.now(now_ms))

    def truncate_fully_and_start_at(self, offset, *, log_start_offset=None):
        """Drop everything and go on, empty, at `offset`; durable on return.

        log_start_offset: at most `offset`, which it is if None. Raises UsageError for what is no
        integer from 0 on, NoSpaceError, LogFailedError, LogClosedError.
        """
        cdef int64_t end = offset_of(offset, "offset", self.path)
        cdef int64_t start = end
        if log_start_offset is not None:
            start = integer_of(log_start_offset, "log_start_offset", self.path, 0, end)
        with self.guard:
            self.restart_locked(end, start)

    cdef int restart_locked(self, int64_t offset, int64_t log_start_offset) except -1:
        cdef int64_t now = self.now(None)
        cdef LogSegment segment
        # 0: until the new segment is there, any number of the old ones may be left.
        self.recovered_to = 0
        self.keeper.lower_recovery_point(0)
        self.guard.begin_change()
        self.truncations += 1
        self.log_end_offset = min(offset, self.log_end_offset)
        gone = self.segments
        for segment in reversed(gone):
            self.retired.retire(segment.prefix, now)
        # Or it could outlive a crash beside some of them, as if compaction had been in between.
        mapped_file.fsync_dir(self.path)
        self.segments = SegmentList((self.new_segment(offset, now),))
        self.log_start_offset = log_start_offset
        self.log_end_offset = offset
        self.dense_end = offset
        self.written_epoch = -1
        self.durable_end = offset
        if self.watermark >= 0:
            self.watermark = offset
        self.epochs.clear()
        # Replacing the epoch file syncs the directory, and with it the names of the segments.
        self.keeper.write_epochs(self)
        self.recovered_to = offset
        self.names_unsynced = False
        self.producers = self.producers.emptied()
        self.producers.end_offset = offset
        self.drop_snapshots(0)
        self.snapshot_offset = offset
        self.keeper.write_log_start(log_start_offset)
        self.guard.end_change()
        return 0

    def truncate_prefix_to(self, offset):
        """Delete records below `offset`: log_start_offset moves at once, segments go by retention.

        True if it moved. Durable on return. Raises OffsetOutOfRangeError above the high watermark,
        UsageError for what is no integer from 0 on, LogClosedError. Source: Kafka's DeleteRecords
        (KIP-107).
        """
        cdef int64_t start = offset_of(offset, "offset", self.path)
        with self.guard:
            if start > self.high_watermark:
                raise OffsetOutOfRangeError(
                    f"expected an offset in [0, {self.high_watermark}] to delete the records of "
                    f"{self.path} below, found {start}; only committed records can be deleted",
                    path=self.path, offset=start,
                )
            return self.move_log_start(start)

    cdef bint move_log_start(self, int64_t offset) except -1:
        """Raise log_start_offset and what follows from it; False if it is there already."""
        if offset <= self.log_start_offset:
            return False
        # On disk first: what could not be written has deleted nothing, here as after a crash.
        tried, self.start_tried = self.start_tried, offset
        try:
            self.keeper.write_log_start(offset)
        except NoSpaceError:
            self.start_tried = tried  # the old one is there
            raise
        self.log_start_offset = offset
        if self.epochs.truncate_from_start(offset):
            self.write_fewer_epochs()
        return True

    cdef Py_ssize_t expired_count(self, int64_t now) except -1:
        """How many of the oldest segments retention drops."""
        cdef LogSegment segment
        cdef Py_ssize_t place, count = self.segments.count
        cdef int64_t excess, end_offset
        cdef bint by_policy = "delete" in self.config.cleanup_policies
        excess = -1
        if by_policy and self.config.retention_bytes >= 0:
            excess = self.size_bytes - self.config.retention_bytes
        for place in range(count):
            segment = self.segments.at(place)
            end_offset = self.segments.base(place + 1) if place + 1 < count else self.log_end_offset
            if self.high_watermark < end_offset or (place + 1 == count and not segment.size_bytes):
                return place
            if place + 1 < count and end_offset <= self.log_start_offset:
                pass
            elif excess >= 0 and excess >= segment.size_bytes:
                pass
            elif by_policy and 0 <= self.config.retention_ms < now - segment.time_of_roll():
                pass
            else:
                return place
            excess -= segment.size_bytes
        return count

    def apply_retention(self, *, now_ms=None):
        """Drop old segments by log start, size and time; returns the base offsets that went.

        Only committed segments go, the oldest first. Files are renamed now and unlinked once
        file_delete_delay_ms has passed, by a later call; views stay readable. Raises UsageError
        for a now_ms that is no integer, LogFailedError, LogClosedError. The rules are those of
        Kafka's UnifiedLog.deleteOldSegments.
        """
        cdef int64_t now = self.now(now_ms)
        cdef Py_ssize_t count
        cdef LogSegment segment
        with self.guard:
            self.retired.unlink_due(now)
            self.expire_producers(now)
            count = self.expired_count(now)
            if not count:
                return []
            if count == self.segments.count:
                self.roll_locked(self.log_end_offset, now)
            gone = self.segments[:count]
            self.move_log_start(self.segments.base(count))
            self.drop_first(gone, now)
            self.snapshots.remove(below=self.segments.base(0))
            return [segment.base_offset for segment in gone]

    cdef int drop_first(self, tuple gone, int64_t now) except -1:
        """Rename the oldest segments. One that cannot be stays, with those behind it."""
        cdef LogSegment segment
        cdef Py_ssize_t count = 0
        try:
            for segment in gone:
                self.retired.retire(segment.prefix, now)
                count += 1
        finally:
            if count:
                self.segments = self.segments.behind(count)
                self.names_unsynced = True

    cdef int drop_snapshots(self, int64_t above, object keep=()) except -1:
        """Remove producer snapshots behind `above` (-1: none of these), less those to keep.

        One at the log start goes, too: it speaks of producers whose records are all gone, and Kafka
        forgets them.
        """
        if self.snapshots.remove(above=above, below=self.log_start_offset + 1, keep=keep):
            # One that speaks of what was cut must not come back beside other records.
            self.names_unsynced = True

    cdef int replay_producers(self, int64_t end_offset, int64_t now) except -1:
        cdef int64_t offset
        cdef LogSegment segment
        cdef Py_ssize_t place
        cdef ProducerState producers = self.producers.emptied()
        offset = self.snapshots.load_latest(producers, self.log_start_offset, end_offset, now)
        if offset < 0:
            offset = self.log_start_offset
        self.snapshot_offset = offset
        producers.end_offset = offset
        if offset < end_offset:
            for place in range(self.floor_place(offset), self.segments.count):
                segment = self.segments.at(place)
                if segment.base_offset >= end_offset:
                    break  # recovery has not checked these yet
                if place + 2 >= self.segments.count:
                    self.take_snapshot_at(segment.base_offset, producers)
                segment.replay(producers, offset, end_offset)
                if place + 1 < self.segments.count and self.segments.base(place + 1) <= end_offset:
                    self.check_joined(self.segments, place)
        producers.end_offset = end_offset
        producers.remove_expired(now)
        producers.release_below(self.high_watermark)
        # As a whole: a reader asks at any time up to where transactions have ended.
        self.producers = producers
        self.bytes_since_snapshot = 0

    cdef int rebuild_aborts(self, LogSegment segment) except -1:
        """Make the segment's transaction index anew; the caller holds the writer's lock."""
        cdef LogSegment other
        cdef Py_ssize_t place
        producers = ProducerState(self.config.producer_id_expiration_ms)
        # At time 0 no producer of the snapshot has expired.
        offset = self.snapshots.load_latest(
            producers, self.log_start_offset, segment.base_offset, 0
        )
        start = max(offset, self.log_start_offset)
        completed = []
        for place in range(self.floor_place(start), self.segments.count):
            other = self.segments.at(place)
            if other.base_offset > segment.base_offset or not other.size_bytes:
                break
            headers = scan(other.view(0, other.size_bytes), check_crc=False).headers
            completed = producers.replay(headers[headers["base_offset"] >= start])
        segment.transaction_index.replace(entry for entry in completed if entry.aborted)
        return 0

    def close(self, *, flush=True):
        """Flush, write a producer snapshot and give all files back; views stay readable.

        With flush=False nothing is synced or written, as if the process had been killed. The log is
        closed when this returns, and also when it raises: the stop is then not a clean one. Raises
        UsageError for what is no bool, NoSpaceError, LogFailedError.
        """
        cdef bint flushing = flag_of(flush, "flush", self.path)
        cdef LogSegment segment
        if self.guard.closed or self.guard.forked():
            return
        self.guard.sync_lock.acquire()
        self.guard.lock_any()
        try:
            if self.guard.closed:
                return
            if flushing:
                self.guard.check()
                self.finish()
        finally:
            self.guard.close()
            for segment in self.segments:
                segment.abandon()
            self.guard.unlock(None)
            self.guard.sync_lock.release()

    cdef int finish(self) except -1:
        """Write and sync all that is in memory: the log is whole behind this."""
        cdef LogSegment segment, active = self.segments.last()
        self.take_snapshot()
        if self.epochs_owed:
            # Behind a clean close the file is believed: an entry too many says what is no more.
            self.write_epochs_or(self.epochs.copy())
        self.names_unsynced = True
        active.seal()
        self.flush()
        self.retired.unlink_all()
        for segment in self.segments:
            segment.close()
