# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""The leader epochs of a log and their file: one that begins is on disk before its first batch.

A batch that no epoch entry covers could be kept by a truncation that should have cut it
(KAFKA-7415). An entry too many does no harm: it covers no batch, and the next write says less.
"""

from libc.stdint cimport int32_t, int64_t

from replog._native.batch_set cimport BatchSet
from replog._native.leader_epoch_cache cimport LeaderEpochCache
from replog._native.log_state cimport LogState
from replog._native.record_batch cimport BatchHeader

from replog.errors import NoSpaceError, OutOfDescriptorsError


cdef class EpochFile:
    """See the module. The caller holds the writer's lock."""

    def __init__(self, LogState state not None):
        self.state = state

    cdef bint lacks(self, int32_t leader_epoch) noexcept:
        """Whether `note` has something to do before a batch of `leader_epoch` is written."""
        return self.owed or leader_epoch != self.state.epochs.latest()

    cdef int note(self, BatchSet batches, LeaderEpochCache before) except -1:
        """Enter the epochs of a set that is to be written, durable on return.

        If the file cannot be written, those of `before` hold again: the next try writes it.
        """
        cdef LeaderEpochCache epochs = self.state.epochs
        cdef BatchHeader* header
        cdef int64_t number
        cdef bint changed = False
        for number in range(batches.count):
            header = &batches.batches[number].header
            if header.leader_epoch >= 0 and epochs.maybe_assign(
                header.leader_epoch, header.base_offset
            ):
                changed = True
        if changed or self.owed:
            self.write_or(before)
        return 0

    cdef bint assign(self, int32_t leader_epoch, int64_t start_offset) except -1:
        """Enter one epoch, durable on return; False if it was known."""
        before = self.state.epochs.copy()
        cdef bint changed = self.state.epochs.maybe_assign(leader_epoch, start_offset)
        if changed:
            self.write_or(before)
        return changed

    cdef int write_or(self, LeaderEpochCache before) except -1:
        """Write the epochs; if that fails, the cache holds those of `before` again."""
        try:
            self.state.keeper.write_epochs(self.state)
            self.owed = False
        except BaseException:
            self.restore(before)
            raise
        return 0

    cdef int write_fewer(self) except -1:
        """Write the epochs, now or before the next batch: the next open drops what is too much."""
        try:
            self.write_or(self.state.epochs.copy())
        except (NoSpaceError, OutOfDescriptorsError):
            pass
        return 0

    cdef int restore(self, LeaderEpochCache before) except -1:
        """Hold the epochs of `before` again."""
        self.state.epochs.restore(before)
        self.owed = True
        return 0
