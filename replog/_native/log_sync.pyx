# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""What of a log is synced: data, indexes, directory, then the recovery point.

A crash in between: more to recover. The disk is waited for without the writer's lock: what a cut
overtook is synced again. An error of the disk itself fails the log: after a failed sync the kernel
may have dropped the pages, and nothing is known of them.
"""

from libc.stdint cimport int64_t

from replog._native.log_segment cimport LogSegment
from replog._native.log_state cimport LogState
from replog._native.mapped_file cimport MappedFile

from replog.errors import LogClosedError, LogFailedError, LogTruncatedError, StorageError

from replog._native import mapped_file

cdef int64_t OFFSET_MAX = 0x7FFFFFFFFFFFFFFF


cdef class LogSync:
    """See the module."""

    def __init__(self, LogState state not None):
        self.state = state
        self.flush_messages = state.config.flush_messages
        self.flush_ms = state.config.flush_ms
        self.flushed_at_ms = state.now(None)
        self.commit_each = state.config.flush_mode == "commit"

    cdef int commit(self, int64_t end_offset) except -1:
        """Return once every record below end_offset is synced; callers that wait share one sync."""
        cdef LogState state = self.state
        if state.durable_end >= end_offset:
            return 0
        state.guard.check()
        state.guard.sync_lock.acquire()
        try:
            while state.durable_end < end_offset and not self.sync_once(True):
                pass
        finally:
            state.guard.sync_lock.release()
        return 0

    cdef int flush(self) except -1:
        """Sync everything written so far, then move the recovery point to it."""
        cdef LogState state = self.state
        state.guard.check()
        state.guard.sync_lock.acquire()
        try:
            while not self.sync_once(False):
                pass
        finally:
            state.guard.sync_lock.release()
        return 0

    cdef int checkpoint(self) except -1:
        """Flush, and persist the recovery point now."""
        self.flush()
        with self.state.guard:
            self.state.keeper.write_recovery_point(self.state, self.state.recovered_to)
        return 0

    cdef bint asks_for_time(self) noexcept:
        """Whether `as_configured` goes by the time."""
        return self.flush_ms < OFFSET_MAX

    cdef int as_configured(self, int64_t end_offset, int64_t now) except -1:
        """Sync what flush_mode, flush_messages and flush_ms ask for behind an append."""
        cdef LogState state = self.state
        if self.commit_each:
            try:
                self.commit(end_offset)
            except (LogClosedError, LogFailedError):
                raise
            except StorageError as error:
                # The records are in, and others may have followed: they cannot be taken back.
                state.guard.fail()
                raise LogFailedError(
                    f"expected to sync the records that were appended to {state.path}, found that "
                    f"it cannot be done now ({error}); open the log again",
                    path=state.path,
                ) from error
        if state.log_end_offset - state.recovered_to >= self.flush_messages or (
            self.flush_ms < OFFSET_MAX and now - self.flushed_at_ms >= self.flush_ms
        ):
            self.flushed_at_ms = now
            try:
                self.flush()
            except LogFailedError:
                raise
            except StorageError:
                pass  # nothing was promised of these records yet: the next append tries again
        return 0

    cdef int sync_tail(self) except -1:
        """Before anything follows, or cuts, the tail of a process that died: it may have been
        cutting it, and what it had cut must not come back beside, or behind, other records.
        """
        cdef LogState state = self.state
        if state.tail_unsynced:
            state.segments.last().flush_records()
            state.sync_names()
            state.tail_unsynced = False
        return 0

    cdef bint sync_once(self, bint records_only) except -1:
        """Sync what there is now, beside appends; False where a cut came between, to do it again.

        The caller holds the guard's sync_lock.
        """
        cdef LogState state = self.state
        cdef LogSegment segment
        cdef int64_t truncations = 0, target = 0, known = 0
        cdef bint names = False
        with state.guard:
            known = state.durable_end if records_only else state.recovered_to
            # After a cut inside a batch the log is found to end before log_end_offset.
            target = state.log_end_offset
            if not records_only:
                target = min(target, state.dense_end)
            if target <= known and not state.names_unsynced:
                return True
            truncations = state.truncations
            # A segment sealed or cut exactly at the known end has index bytes still to sync.
            noted = [
                (segment, file) for segment in state.segments[state.floor_place(max(known - 1, 0)):]
                for file in segment.written_files(records_only)
            ]
            names = state.names_unsynced
            state.names_unsynced = False
        try:
            for segment, file in noted:
                self.sync_file(segment, file, truncations)
            if names:
                mapped_file.fsync_dir(state.path)
            names = False
            with state.guard:
                if truncations != state.truncations:
                    return False
                state.durable_end = max(state.durable_end, target)
                if not records_only:
                    state.recovered_to = max(state.recovered_to, target)
            if not records_only and target > known:
                # A truncation from here on lowers it again, on disk behind this.
                state.keeper.note_recovery_point(state, target)
        except LogFailedError:
            state.guard.fail()
            raise
        finally:
            state.names_unsynced = state.names_unsynced or names
        return True

    cdef int sync_file(self, LogSegment segment, MappedFile file, int64_t truncations) except -1:
        """Sync one file of a segment, unless retention or a cut took it away meanwhile."""
        cdef LogState state = self.state
        try:
            file.flush()
        except (LogTruncatedError, LogClosedError):
            if truncations == state.truncations and segment in state.segments:
                raise
        return 0
