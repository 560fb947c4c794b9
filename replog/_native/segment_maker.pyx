# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""The files of a new segment. Their names are not synced yet: the next flush syncs them."""

from libc.stdint cimport int64_t

import os

from replog._native.log_segment cimport LogSegment
from replog._native.log_state cimport LogState

from replog._native import mapped_file
from replog._native.segment_files import SEGMENT_SUFFIXES


cdef class SegmentMaker:
    """See the module."""

    def __init__(self, LogState state not None, object jitter):
        self.state = state
        self.jitter = jitter
        self.segment_ms = self.age_max_ms = state.config.segment_ms

    cdef LogSegment replace(self, int64_t base_offset, int64_t now):
        prefix = f"{self.state.path}/{base_offset:020d}"
        for path in [prefix + suffix for suffix in SEGMENT_SUFFIXES]:
            if os.path.exists(path):
                mapped_file.remove(path)
        return self.make(base_offset, now)

    cdef LogSegment make(self, int64_t base_offset, int64_t now):
        cdef LogState state = self.state
        config = state.config
        cdef LogSegment segment = LogSegment(
            state.path, base_offset,
            index_interval_bytes=config.index_interval_bytes,
            index_bytes_max=config.segment_index_bytes,
            map_bytes=config.segment_bytes, dense=not state.compacted, created_ms=now,
        )
        segment.create()
        segment.guard = state.guard
        state.names_unsynced = True
        if self.jitter is not None and config.segment_jitter_ms:
            # As for Kafka, the jitter takes no more than all of segment_ms away.
            self.age_max_ms = self.segment_ms - self.jitter(
                min(config.segment_jitter_ms, self.segment_ms)
            )
        return segment
