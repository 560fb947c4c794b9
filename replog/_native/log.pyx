# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""The whole log of one partition: flush, truncation, retention, close.

flush: data, indexes, directory, then the recovery point. A crash in between: more to recover.
truncate: recovery point lowered, later segments renamed from the last one on, directory synced,
    cut, synced, epochs. A crash in between: more to recover; never an old tail behind new records.
start at: recovery point lowered, all segments renamed from the last one on, the new one made,
    directory synced. A crash in between: a shorter log, or an empty one at its start.
retention: log start, then segments renamed from the first one on. A crash in between: segments
    below the log start, dropped next time.
close: flush with closing time entries and a producer snapshot. A crash in between: an unclean stop.
"""

import os

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from replog._native.appendable_log cimport AppendableLog
from replog._native.arguments cimport flag_of, integer_of, offset_of
from replog._native.file_system cimport fork_count
from replog._native.log_segment cimport LogSegment
from replog._native.record_batch cimport BATCH_OK, BatchHeader, scan_batches

from replog.errors import OffsetOutOfRangeError, OutOfDescriptorsError

from replog._native import mapped_file, snapshot_files
from replog._native.appendable_log import SEGMENT_SUFFIXES
from replog._native.producer_state import ProducerState
from replog._native.record_batch import scan

cdef enum:
    REPLAY_CHUNK = 1024


cdef class Log(AppendableLog):
    """See the module. Built by `log_recovery.load`, which fills in segments and offsets."""

    cdef int sync_up_to(self, int64_t start_offset, bint records_only) except -1:
        """Sync the segments from the one that holds start_offset on, then their names."""
        cdef LogSegment segment
        try:
            # A segment sealed or cut exactly at start_offset has index bytes still to sync.
            for segment in self.segments[self.floor_place(max(start_offset - 1, 0)):]:
                if records_only:
                    segment.flush_records()
                else:
                    segment.flush()
            if self.names_unsynced:
                self.names_unsynced = False
                mapped_file.fsync_dir(self.path)
        except OutOfDescriptorsError:
            self.names_unsynced = True
            raise
        except BaseException:
            # After a failed sync the kernel may have dropped the pages: nothing here is known.
            self.failed = True
            raise
        return 0

    def commit(self, end_offset):
        """Return once every record below end_offset is synced; callers that wait share one sync.

        Raises UsageError for what is no integer from 0 on, LogFailedError, LogClosedError.
        """
        cdef int64_t wanted = offset_of(end_offset, "end_offset", self.path)
        cdef int64_t target
        if self.durable_end >= wanted:
            return
        if self.fork_generation != fork_count[0]:
            self.refuse()
        self.sync_lock.acquire()
        try:
            if self.durable_end >= wanted:
                return
            if self.failed or self.closed:
                self.refuse()
            target = self.log_end_offset
            truncations = self.truncations
            self.sync_up_to(self.durable_end, True)
            if truncations == self.truncations:
                self.durable_end = target
        finally:
            self.sync_lock.release()

    def flush(self):
        """Sync everything written so far, then move the recovery point to it. Returns it.

        Durable on return. Raises LogFailedError if a sync fails, after which the log takes no work.
        """
        cdef int64_t target
        if self.fork_generation != fork_count[0]:
            self.refuse()
        self.sync_lock.acquire()
        try:
            if self.failed or self.closed:
                self.refuse()
            # After a cut inside a batch the log is found to end before log_end_offset.
            target = min(self.log_end_offset, self.dense_end)
            truncations = self.truncations
            if target > self.recovered_to or self.names_unsynced:
                self.sync_up_to(self.recovered_to, False)
                # A truncation meanwhile has lowered the recovery point; it must stay there.
                if truncations == self.truncations and target > self.recovered_to:
                    self.recovered_to = target
                    self.durable_end = max(self.durable_end, target)
                    self.note_recovery_point(target)
            return self.recovery_point
        finally:
            self.sync_lock.release()

    def truncate_to(self, offset):
        """Keep offsets below `offset`; the whole batch that holds it goes. True if records went.

        log_end_offset becomes `offset`. Views of cut bytes stay readable. Durable on
        return. The cost does not depend on the size of the log. Raises UsageError for what is no
        integer from 0 on, NoSpaceError, LogFailedError, LogClosedError.
        """
        cdef int64_t cut = offset_of(offset, "offset", self.path)
        self.lock()
        try:
            if cut >= self.log_end_offset:
                if self.epochs.truncate_from_end(self.log_end_offset):
                    self.write_epochs()
                return False
            if cut < self.bases[0]:
                self.restart_locked(cut, cut)
            else:
                self.truncate_locked(cut)
            return True
        finally:
            self.unlock()

    cdef int truncate_locked(self, int64_t offset) except -1:
        cdef Py_ssize_t place
        cdef LogSegment segment
        cdef BatchHeader header
        cdef int64_t now = self.now(None)
        cdef int64_t kept_end
        cdef bint inside
        place = self.floor_place(offset)
        segment = self.segments[place]
        inside = segment.find(offset, &header)
        kept_end = header.base_offset if inside else min(offset, segment.next_offset())
        # Lowered here first: another thread that persists it meanwhile must not raise it again. To
        # the end of what is kept, since that is where a crashed log is found to end.
        self.recovered_to = min(self.recovered_to, kept_end)
        self.lower_recovery_point(kept_end)
        if offset < self.log_start_offset:
            # Before the cut: an end below the persisted start would make loading begin anew there.
            self.write_log_start(offset)
            self.log_start_offset = offset
        # Readers stop at the log end: it moves before any byte goes.
        self.log_end_offset = offset
        self.watermark = min(self.watermark, offset)
        self.durable_end = min(self.durable_end, offset)
        self.truncations += 1
        try:
            self.drop_from(place + 1, now)
            self.dense_end = kept_end
            if inside:
                segment.cut(header.position, offset)
                # Synced before anything follows: an old tail must not come back behind new records.
                segment.flush_records()
            if kept_end < offset and segment.size_bytes == 0 and segment.base_offset == offset:
                self.dense_end = offset
            self.find_written_epoch()
            self.drop_snapshots(offset)
            self.replay_producers(offset, now)
            self.take_snapshot()
        except BaseException:
            # Half a cut: bytes behind the log's end would come between the next batches.
            self.failed = True
            raise
        if self.epochs.truncate_from_end(offset):
            self.write_epochs()
        return 0

    cdef int find_written_epoch(self) except -1:
        """Read the epoch of the last batch there is, whether or not it may still be read."""
        cdef BatchHeader last
        cdef LogSegment segment
        self.written_epoch = -1
        if self.dense_end > self.bases[0]:
            segment = self.segments[self.floor_place(self.dense_end - 1)]
            if segment.find(self.dense_end - 1, &last):
                self.written_epoch = last.leader_epoch
        return 0

    cdef int drop_from(self, Py_ssize_t place, int64_t now) except -1:
        """Rename the segments from `place` on, the last one first, so that no hole can appear."""
        cdef LogSegment segment
        gone = self.segments[place:]
        if not gone:
            return 0
        self.install(list(self.segments[:place]))
        for segment in reversed(gone):
            self.retire(segment, now)
        mapped_file.fsync_dir(self.path)
        return 0

    cdef int retire(self, LogSegment segment, int64_t now) except -1:
        """Rename the files of a segment; they are unlinked after file_delete_delay_ms."""
        for suffix in SEGMENT_SUFFIXES:
            path = segment.prefix + suffix
            try:
                mapped_file.rename(path, path + ".deleted")
            except FileNotFoundError:
                continue
            self.retired.append((now + self.config.file_delete_delay_ms, path + ".deleted"))
        return 0

    def unlink_retired(self, *, now_ms=None):
        """Unlink renamed files whose delay is over; mappings of them stay readable."""
        cdef int64_t now = self.now(now_ms)
        self.check_open()
        waiting = []
        for deadline_ms, path in self.retired:
            if deadline_ms > now:
                waiting.append((deadline_ms, path))
                continue
            try:
                mapped_file.remove(path)
            except FileNotFoundError:
                continue
        self.retired = waiting

    def truncate_fully_and_start_at(self, offset, *, log_start_offset=None):
        """Drop everything and go on, empty, at `offset`; durable on return.

        log_start_offset: at most `offset`, which it is if None. Raises UsageError for what is no
        integer from 0 on, NoSpaceError, LogFailedError, LogClosedError.
        """
        cdef int64_t end = offset_of(offset, "offset", self.path)
        cdef int64_t start = end
        if log_start_offset is not None:
            start = integer_of(log_start_offset, "log_start_offset", self.path, 0, end)
        self.lock()
        try:
            self.restart_locked(end, start)
        finally:
            self.unlock()

    cdef int restart_locked(self, int64_t offset, int64_t log_start_offset) except -1:
        cdef int64_t now = self.now(None)
        cdef LogSegment segment
        # 0: until the new segment is there, any number of the old ones may be left.
        self.recovered_to = 0
        self.lower_recovery_point(0)
        self.truncations += 1
        self.log_end_offset = min(offset, self.log_end_offset)
        gone = self.segments
        for segment in reversed(gone):
            self.retire(segment, now)
        self.install([self.new_segment(offset, now)])
        self.log_start_offset = log_start_offset
        self.log_end_offset = offset
        self.dense_end = offset
        self.written_epoch = -1
        self.recovered_to = offset
        self.durable_end = offset
        if self.watermark >= 0:
            self.watermark = offset
        self.epochs.clear()
        # Replacing the epoch file syncs the directory, and with it the names of the segments.
        self.write_epochs()
        self.names_unsynced = False
        self.producers.clear()
        self.producers.end_offset = offset
        self.drop_snapshots(0)
        self.snapshot_offset = offset
        self.write_log_start(log_start_offset)
        return 0

    def truncate_prefix_to(self, offset):
        """Delete records below `offset`: log_start_offset moves at once, segments go by retention.

        True if it moved. Durable on return. Raises OffsetOutOfRangeError above the high watermark,
        UsageError for what is no integer from 0 on, LogClosedError. Source: Kafka's DeleteRecords
        (KIP-107).
        """
        cdef int64_t start = offset_of(offset, "offset", self.path)
        self.lock()
        try:
            if start > self.high_watermark:
                raise OffsetOutOfRangeError(
                    f"expected an offset in [0, {self.high_watermark}] to delete the records of "
                    f"{self.path} below, found {start}; only committed records can be deleted",
                    path=self.path, offset=start,
                )
            return self.move_log_start(start)
        finally:
            self.unlock()

    def move_log_start(self, int64_t offset):
        """Raise log_start_offset and what follows from it; the caller holds the writer's lock."""
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.write_log_start(offset)
        if self.epochs.truncate_from_start(offset):
            self.write_epochs()
        return True

    cdef Py_ssize_t expired_count(self, int64_t now) except -1:
        """How many of the oldest segments retention drops."""
        cdef LogSegment segment
        cdef Py_ssize_t place, count = len(self.segments)
        cdef int64_t excess, end_offset
        cdef bint by_policy = "delete" in self.config.cleanup_policies
        excess = -1
        if by_policy and self.config.retention_bytes >= 0:
            excess = self.size_bytes - self.config.retention_bytes
        for place in range(count):
            segment = self.segments[place]
            end_offset = self.bases[place + 1] if place + 1 < count else self.log_end_offset
            if self.high_watermark < end_offset or (place + 1 == count and not segment.size_bytes):
                return place
            if place + 1 < count and end_offset <= self.log_start_offset:
                pass
            elif excess >= 0 and excess >= segment.size_bytes:
                pass
            elif by_policy and self.config.retention_ms >= 0 and now - (
                segment.max_timestamp if segment.max_timestamp >= 0 else segment.modified_ms
            ) > self.config.retention_ms:
                pass
            else:
                return place
            excess -= segment.size_bytes
        return count

    def apply_retention(self, *, now_ms=None):
        """Drop old segments by log start, size and time; returns the base offsets that went.

        Only committed segments go, the oldest first. Files are renamed now and unlinked once
        file_delete_delay_ms has passed, by a later call; views stay readable. Raises UsageError
        for a now_ms that is no integer, LogFailedError, LogClosedError. Facts 4.4.
        """
        cdef int64_t now = self.now(now_ms)
        cdef Py_ssize_t count
        cdef LogSegment segment
        self.lock()
        try:
            self.unlink_retired(now_ms=now)
            count = self.expired_count(now)
            if not count:
                return []
            if count == len(self.segments):
                self.roll_locked(self.log_end_offset, now)
            gone = self.segments[:count]
            self.move_log_start(self.bases[count])
            self.install(list(self.segments[count:]))
            for segment in gone:
                self.retire(segment, now)
            self.names_unsynced = True
            snapshot_files.remove_snapshots(self.path, below=self.bases[0])
            return [segment.base_offset for segment in gone]
        finally:
            self.unlock()

    def reset_producers(self, int64_t end_offset, *, now_ms=None):
        """Rebuild the producers' state up to end_offset from the newest snapshot and the log."""
        self.drop_snapshots(end_offset)
        self.replay_producers(end_offset, self.now(now_ms))

    cdef int drop_snapshots(self, int64_t above, object keep=()) except -1:
        """Remove producer snapshots behind `above` (-1: none of these), less those to keep.

        One at the log start goes, too: it speaks of producers whose records are all gone, and Kafka
        forgets them.
        """
        if snapshot_files.remove_snapshots(
            self.path, above=above, below=self.log_start_offset + 1, keep=keep
        ):
            # One that speaks of what was cut must not come back beside other records.
            self.names_unsynced = True
        return 0

    cdef int replay_producers(self, int64_t end_offset, int64_t now) except -1:
        cdef int64_t offset
        cdef LogSegment segment
        cdef Py_ssize_t place
        self.producers.clear()
        offset = snapshot_files.load_latest(
            self.path, self.producers, self.log_start_offset, end_offset, now
        )
        if offset < 0:
            offset = self.log_start_offset
        self.snapshot_offset = offset
        self.producers.end_offset = offset
        if offset < end_offset:
            for place in range(self.floor_place(offset), len(self.segments)):
                segment = self.segments[place]
                if segment.base_offset >= end_offset:
                    break  # recovery has not checked these yet
                if place + 2 >= len(self.segments):
                    self.take_snapshot_at(segment.base_offset)
                self.replay_segment(segment, offset, end_offset)
                if place + 1 < len(self.bases) and self.bases[place + 1] <= end_offset:
                    self.check_joined(self.segments, place)
        self.producers.end_offset = end_offset
        self.producers.remove_expired(now)
        self.producers.release_below(self.high_watermark)
        self.bytes_since_snapshot = 0
        return 0

    def replay_segment(self, LogSegment segment, int64_t offset, int64_t end_offset):
        """Apply the segment's batches of [offset, end_offset) to the producers; headers only."""
        cdef BatchHeader first
        cdef BatchHeader* headers
        cdef int64_t found = 0, end = 0, position, number, size
        cdef int outcome = BATCH_OK
        if not segment.find(offset, &first):
            return
        position = first.position
        size = segment.file.size_bytes
        headers = <BatchHeader*> malloc(REPLAY_CHUNK * sizeof(BatchHeader))
        if headers == NULL:
            raise MemoryError
        try:
            while position < size and outcome == BATCH_OK:
                outcome = scan_batches(
                    segment.file.map(max(segment.map_bytes, size)) + position, size - position,
                    position, False, False, -1, -1, headers, REPLAY_CHUNK, &found, &end,
                )
                for number in range(found):
                    if headers[number].base_offset >= end_offset:
                        return
                    # The first may begin below `offset`, where records were deleted inside a batch.
                    if headers[number].producer_id >= 0:
                        self.producers.update(&headers[number])
                position += end
        finally:
            free(headers)
        if outcome != BATCH_OK:
            segment.refuse(outcome, position)

    def rebuild_aborts(self, LogSegment segment):
        """Make the segment's transaction index anew from the batches."""
        cdef LogSegment other
        cdef Py_ssize_t place
        producers = ProducerState(self.config.producer_id_expiration_ms)
        # At time 0 no producer of the snapshot has expired.
        offset = snapshot_files.load_latest(
            self.path, producers, self.log_start_offset, segment.base_offset, 0
        )
        start = max(offset, self.log_start_offset)
        completed = []
        self.lock()
        try:
            for place in range(self.floor_place(start), len(self.segments)):
                other = self.segments[place]
                if other.base_offset > segment.base_offset or not other.size_bytes:
                    break
                headers = scan(other.view(0, other.size_bytes), check_crc=False).headers
                completed = producers.replay(headers[headers["base_offset"] >= start])
            segment.transaction_index.reset()
            for transaction in completed:
                if transaction.aborted:
                    segment.transaction_index.append(transaction)
        finally:
            self.unlock()

    def close(self, *, flush=True):
        """Flush, write a producer snapshot and give all files back; views stay readable.

        With flush=False nothing is synced or written, as if the process had been killed. Raises
        UsageError for what is no bool, NoSpaceError, LogFailedError.
        """
        cdef bint flushing = flag_of(flush, "flush", self.path)
        cdef LogSegment segment
        if self.closed or self.fork_generation != fork_count[0]:
            return
        if flushing:
            self.lock()
        else:
            self.write_lock.acquire()
        try:
            if flushing:
                self.take_snapshot()
                self.names_unsynced = True
                self.active_segment.seal()
                self.flush()
                for _, path in self.retired:
                    if os.path.exists(path):
                        mapped_file.remove(path)
            self.closed = True
            if flushing:
                for segment in self.segments:
                    segment.close()
        finally:
            self.unlock()
