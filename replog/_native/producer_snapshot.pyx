# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""The `.snapshot` file: the last batch of every producer below the offset in its name.

Big-endian, byte for byte Kafka's (ProducerSnapshot.json, version 1):

    0         2        6          10
    +---------+--------+----------+-- 46 bytes per producer ------------------------------------+
    | version | CRC    | count    | id i64 | epoch i16 | last sequence i32 | last offset i64 |
    | i16 = 1 | 32C    | i32      | offset delta i32 | timestamp i64 | coordinator epoch i32 |
    |         | of 6.. |          | first offset of the open transaction i64                  |
    +---------+--------+----------+-----------------------------------------------------------+

Sequences wrap from 2147483647 to 0. An entry with last offset -1 remembers no batch (what stands
behind an end marker). A damaged snapshot is deleted and an older one taken: derived from the log.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from collections import namedtuple

from replog._native.crc32c cimport crc32c

from replog.errors import CorruptFileError

cdef enum:
    SNAPSHOT_VERSION = 1
    SNAPSHOT_HEADER_BYTES = 10
    CRC_COVERS_FROM = 6
    NONE = -1

ProducerEntry = namedtuple(
    "ProducerEntry",
    "producer_id producer_epoch first_sequence last_sequence last_offset offset_delta timestamp "
    "coordinator_epoch current_txn_first_offset",
)


cdef int32_t first_sequence_of(const CachedBatch* batch) noexcept nogil:
    """Sequences wrap: below 0 comes 2147483647 (Kafka's decrementSequence)."""
    cdef int64_t first = <int64_t>batch.last_sequence - batch.offset_delta
    if batch.last_sequence < batch.offset_delta:
        first += <int64_t>INT32_MAX + 1
    return <int32_t>first


cdef inline void store_number(uint8_t* at, int64_t number, int width) noexcept nogil:
    cdef int place
    for place in range(width):
        at[width - 1 - place] = <uint8_t>(<uint64_t>number >> (8 * place))


cdef inline int64_t load_number(const uint8_t* at, int width) noexcept nogil:
    """Big-endian and signed, `width` bytes."""
    cdef uint64_t number = 0
    cdef int place
    for place in range(width):
        number = (number << 8) | at[place]
    return <int64_t>(number << (64 - 8 * width)) >> (64 - 8 * width)


cdef void store_entry(uint8_t* at, const Producer* producer) noexcept nogil:
    """Write the SNAPSHOT_ENTRY_BYTES at `at`."""
    cdef const CachedBatch* last = NULL
    if producer.batch_count:
        last = &producer.batches[producer.batch_count - 1]
    store_number(at, producer.producer_id, 8)
    store_number(at + 8, producer.producer_epoch, 2)
    store_number(at + 10, last.last_sequence if last != NULL else NONE, 4)
    store_number(at + 14, last.last_offset if last != NULL else NONE, 8)
    store_number(at + 22, last.offset_delta if last != NULL else 0, 4)
    store_number(at + 26, producer.last_timestamp, 8)
    store_number(at + 34, producer.coordinator_epoch, 4)
    store_number(at + 38, producer.transaction_start, 8)


cdef void load_entry(const uint8_t* at, Producer* producer) noexcept nogil:
    """Read the SNAPSHOT_ENTRY_BYTES at `at`; `next` is left alone."""
    cdef CachedBatch last
    producer.producer_id = load_number(at, 8)
    producer.producer_epoch = <int16_t>load_number(at + 8, 2)
    last.last_sequence = <int32_t>load_number(at + 10, 4)
    last.last_offset = load_number(at + 14, 8)
    last.offset_delta = <int32_t>load_number(at + 22, 4)
    last.timestamp = load_number(at + 26, 8)
    producer.last_timestamp = last.timestamp
    producer.coordinator_epoch = <int32_t>load_number(at + 34, 4)
    producer.transaction_start = load_number(at + 38, 8)
    if producer.transaction_start < 0:
        producer.transaction_start = NONE
    # After an end marker no batch is remembered, and the last offset is -1.
    producer.batch_count = 1 if last.last_offset >= 0 else 0
    producer.batches[0] = last


cdef Py_ssize_t check_snapshot(bytes content, str path) except -1:
    """Number of entries. Raises CorruptFileError unless version, CRC, count and length agree."""
    cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(content)
    cdef Py_ssize_t length = len(content)
    cdef int64_t version, count
    cdef uint32_t found, stored
    if length < SNAPSHOT_HEADER_BYTES:
        raise damaged_snapshot(path, f"at least {SNAPSHOT_HEADER_BYTES} bytes", f"{length}")
    version = load_number(at, 2)
    if version != SNAPSHOT_VERSION:
        raise damaged_snapshot(path, f"version {SNAPSHOT_VERSION}", f"version {version}")
    stored = <uint32_t>load_number(at + 2, 4)
    found = crc32c(0, at + CRC_COVERS_FROM, <size_t>(length - CRC_COVERS_FROM))
    if stored != found:
        raise damaged_snapshot(path, f"CRC {stored:#010x}", f"{found:#010x}")
    count = load_number(at + CRC_COVERS_FROM, 4)
    if count < 0 or SNAPSHOT_HEADER_BYTES + count * SNAPSHOT_ENTRY_BYTES != length:
        raise damaged_snapshot(
            path, f"{SNAPSHOT_ENTRY_BYTES} bytes for each of {count} producers", f"{length} bytes"
        )
    return <Py_ssize_t>count


cdef object damaged_snapshot(str path, str expected, str found):
    return CorruptFileError(
        f"expected {expected} in the producer snapshot{' ' + path if path else ''}, found {found}; "
        f"delete it, and the state is rebuilt from an older snapshot and the log",
        path=path,
    )


cdef object entry_of(const Producer* producer):
    cdef const CachedBatch* last = &producer.batches[0]
    if producer.batch_count == 0:
        return ProducerEntry(
            producer.producer_id, producer.producer_epoch, NONE, NONE, NONE, 0,
            producer.last_timestamp, producer.coordinator_epoch, producer.transaction_start,
        )
    last = &producer.batches[producer.batch_count - 1]
    return ProducerEntry(
        producer.producer_id, producer.producer_epoch, first_sequence_of(last),
        last.last_sequence, last.last_offset, last.offset_delta,
        producer.last_timestamp, producer.coordinator_epoch, producer.transaction_start,
    )


cdef bytes new_snapshot(Py_ssize_t count):
    """A snapshot whose `count` entries are still to be stored, and which is then to be sealed."""
    cdef bytes content = PyBytes_FromStringAndSize(
        NULL, SNAPSHOT_HEADER_BYTES + count * SNAPSHOT_ENTRY_BYTES
    )
    cdef uint8_t* at = <uint8_t*>PyBytes_AS_STRING(content)
    store_number(at, SNAPSHOT_VERSION, 2)
    store_number(at + CRC_COVERS_FROM, count, 4)
    return content


cdef uint8_t* snapshot_entries_at(bytes content) noexcept:
    """Place of the first entry; `content` is a new snapshot or one that check_snapshot passed."""
    return <uint8_t*>PyBytes_AS_STRING(content) + SNAPSHOT_HEADER_BYTES


cdef int seal_snapshot(bytes content) except -1:
    """Store the CRC of a new snapshot that has all its entries."""
    cdef uint8_t* at = <uint8_t*>PyBytes_AS_STRING(content)
    cdef size_t covered = <size_t>(len(content) - CRC_COVERS_FROM)
    store_number(at + 2, crc32c(0, at + CRC_COVERS_FROM, covered), 4)
    return 0


def read_snapshot(bytes content not None, str path=None):
    """Entries of a `.snapshot` in file order. Raises CorruptFileError; `path` is only for it."""
    cdef Py_ssize_t count = check_snapshot(content, path)
    cdef const uint8_t* at = snapshot_entries_at(content)
    cdef Producer producer
    cdef Py_ssize_t place
    entries = []
    for place in range(count):
        load_entry(at + place * SNAPSHOT_ENTRY_BYTES, &producer)
        entries.append(entry_of(&producer))
    return entries
