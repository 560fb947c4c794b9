# The `.snapshot` file of a log's producers, and one producer as it is kept in memory.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

cdef enum:
    SNAPSHOT_ENTRY_BYTES = 46
    CACHED_BATCHES = 5         # a repeat of an older batch is out of order, not a duplicate

cdef struct CachedBatch:
    int64_t last_offset
    int64_t timestamp
    int32_t last_sequence
    int32_t offset_delta       # last_offset - base_offset

cdef struct Producer:
    Producer* next             # in the bucket, in order of insertion
    int64_t producer_id
    int64_t last_timestamp     # ms; of the last batch or marker
    int64_t transaction_start  # first offset of the open transaction, -1 for none
    int32_t coordinator_epoch  # of the last end marker, -1 for none
    int16_t producer_epoch     # -1 for none
    int16_t batch_count
    CachedBatch batches[CACHED_BATCHES]  # the oldest first

cdef int32_t first_sequence_of(const CachedBatch* batch) noexcept nogil
# Number of entries; raises CorruptFileError unless version, CRC, count and length agree.
cdef Py_ssize_t check_snapshot(bytes content, str path) except -1
cdef bytes new_snapshot(Py_ssize_t count)
cdef uint8_t* snapshot_entries_at(bytes content) noexcept
cdef int seal_snapshot(bytes content) except -1
# Each reads or writes the SNAPSHOT_ENTRY_BYTES at `at`; load_entry leaves `next` alone.
cdef void store_entry(uint8_t* at, const Producer* producer) noexcept nogil
cdef void load_entry(const uint8_t* at, Producer* producer) noexcept nogil
# The last batch of a producer as a ProducerEntry.
cdef object entry_of(const Producer* producer)
