# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Where a log begins: on disk first. What could not be written has deleted nothing, here as after a
crash.
"""

from libc.stdint cimport int64_t

from replog._native.epoch_file cimport EpochFile
from replog._native.log_state cimport LogState

from replog.errors import NoSpaceError


cdef class LogStart:
    """See the module. The caller holds the writer's lock."""

    def __init__(self, LogState state not None, EpochFile epoch_file not None):
        self.state = state
        self.epoch_file = epoch_file

    cdef bint move(self, int64_t offset) except -1:
        """Raise log_start_offset and what follows from it; False if it is there already."""
        cdef LogState state = self.state
        if offset <= state.log_start_offset:
            return False
        tried, self.tried = self.tried, offset
        try:
            state.keeper.write_log_start(offset)
        except NoSpaceError:
            self.tried = tried  # the old one is there
            raise
        state.log_start_offset = offset
        if state.epochs.truncate_from_start(offset):
            self.epoch_file.write_fewer()
        return True

    cdef int settle(self) except -1:
        """See that none is on the disk but the one that holds: another could end what is kept."""
        if self.tried > self.state.log_start_offset:
            self.state.keeper.write_log_start(self.state.log_start_offset)
            self.tried = self.state.log_start_offset
        return 0
