# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""What is known of a log now. Every part of it holds this, and changes it under the guard's lock.

Readers take no lock. They take the log end first and the list of segments then, each once: an
append moves the log end last and a truncation moves it first, so that a reader never looks behind
what is whole. A look-up that a truncation overtook is made again: it may have met segments of
before and bytes of after.

The parts, each of which knows only those above it:

    SegmentMaker      the files of a new segment
    EpochFile         the epochs, on disk before what relies on them
    LogProducers      the producers, as the batches tell, and their snapshots
    AbortedTransactions, LogLookup: the two that only read
    LogSync           what is synced, and how far that is known
    LogStart          where the log begins, on disk before it is true
    LogCut            the end moves back
    LogWriter         the end moves on; LogFollower: by batches of a leader
    LogRetention      segments go from the front
    Log               all of them, with the face that Python sees
"""

from libc.stdint cimport int64_t

from replog._native.arguments cimport int64_of
from replog._native.leader_epoch_cache cimport LeaderEpochCache
from replog._native.log_guard cimport LogGuard
from replog._native.log_segment cimport LogSegment
from replog._native.producer_state cimport ProducerState
from replog._native.record_batch cimport BatchHeader
from replog._native.segment_list cimport SegmentList

from replog.errors import CorruptBatchError, LogClosedError

from replog._native import mapped_file


cdef class LogState:
    """See the module. Segments and offsets are filled in by `log_recovery.load`."""

    def __init__(self, str path not None, object config, object keeper, object clock):
        self.path = path
        self.config = config
        self.keeper = keeper
        self.clock = clock
        self.guard = LogGuard(path)
        self.segments = SegmentList()
        self.watermark = -1
        self.unit_start = -1
        self.written_epoch = -1
        self.compacted = config.compacted
        self.epochs = LeaderEpochCache()
        self.producers = ProducerState(config.producer_id_expiration_ms)

    # What the keeper asks of the log that it keeps.

    @property
    def closed(self):
        return self.guard.closed

    @property
    def epoch_text(self):
        """What `leader-epoch-checkpoint` is to hold of the epochs."""
        return self.epochs.checkpoint_text()

    @property
    def synced_end_offset(self):
        """Exclusive end of the batches that are known flushed."""
        return self.recovered_to

    cdef int check_open(self) except -1:
        """Raise LogClosedError if the log is closed; never blocks."""
        if self.guard.closed:
            raise LogClosedError(
                f"expected an open log, found {self.path} closed; open it again", path=self.path
            )
        return 0

    cdef int64_t now(self, object now_ms) except? -1:
        return int64_of(self.clock() if now_ms is None else now_ms, "now_ms", self.path)

    cdef int64_t committed_end(self) noexcept:
        if self.watermark >= 0:
            return self.watermark
        return self.log_end_offset if self.unit_start < 0 else self.unit_start

    cdef int64_t move_watermark(self, int64_t offset) except -1:
        """Set the high watermark, clamped to [log_start_offset, log_end_offset]; returns it."""
        self.watermark = max(self.log_start_offset, min(offset, self.log_end_offset))
        self.producers.release_below(self.watermark)
        return self.watermark

    cdef Py_ssize_t floor_place(self, int64_t offset) except -1:
        return self.segments.floor(offset)

    cdef int64_t size_bytes(self) except -1:
        cdef LogSegment segment
        cdef int64_t found = 0
        for segment in self.segments:
            found += segment.size_bytes
        return found

    cdef int sync_names(self) except -1:
        """Sync the directory: the names of segments are then as they are now."""
        mapped_file.fsync_dir(self.path)
        self.names_unsynced = False
        return 0

    cdef int check_joined(self, SegmentList segments, Py_ssize_t place) except -1:
        """Refuse to go from segments[place] to the next over offsets that neither has.

        Only a compacted log has such holes; in any other a file was emptied, cut or taken away.
        """
        cdef LogSegment segment = segments.at(place)
        cdef LogSegment following
        cdef BatchHeader header
        cdef Py_ssize_t now_at
        if not segment.dense or place + 1 >= segments.count:
            return 0
        following = segments.at(place + 1)
        if following.base_offset <= max(segment.joined_end, self.log_start_offset):
            return 0
        if segment.find(following.base_offset - 1, &header):
            segment.joined_end = following.base_offset
            return 0
        # Unless a truncation or retention has taken the two apart meanwhile.
        now_at = self.floor_place(segment.base_offset)
        if segments[place:place + 2] == self.segments[now_at:now_at + 2]:
            end_offset = segment.next_offset()
            raise CorruptBatchError(
                f"expected the records of {segment.path} to go on up to offset "
                f"{following.base_offset}, where the next segment begins, found them to end at "
                f"offset {end_offset}; the file was emptied or cut, or those behind it are gone: "
                f"bring them back, or copy the directory from a replica; if the topic was ever "
                f"compacted, open the log with cleanup_policy='compact'",
                path=segment.path, position=segment.file.size_bytes, offset=end_offset,
            )
        return 0
