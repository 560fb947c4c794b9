# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""What each idempotent or transactional producer has written last: the guard against duplicates.

The entries of Kafka's snapshots stand in the iteration order of a Java HashMap<Long, ...>, so the
table here spreads hashes, grows and keeps its size as that one does (Java turns a bucket of more
than eight into a tree, which keeps the order but for its first entry; ids that collide like that do
not occur). Memory only: the owner of the log writes the files, keeps `end_offset`, and serialises
all calls. Rules: Kafka's ProducerStateManager and ProducerAppendInfo.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memmove, memset

from collections import namedtuple

import numpy as np

from replog._native.batch_format cimport (
    CONTROL_ABORT, CONTROL_BIT, CONTROL_COMMIT, TRANSACTIONAL_BIT,
)
from replog._native.producer_snapshot cimport (
    CACHED_BATCHES, CachedBatch, Producer, SNAPSHOT_ENTRY_BYTES, check_snapshot, entry_of,
    first_sequence_of, load_entry, new_snapshot, seal_snapshot, snapshot_entries_at, store_entry,
)
from replog._native.record_batch cimport BatchHeader
from replog._native.transaction_list cimport (
    Transaction, TransactionList, add_transaction, clear_transactions, complete_transaction,
    completed_of, drop_below, first_not_below, first_open, open_transaction, remove_transaction,
    sort_transactions,
)

from replog.errors import (
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
    UsageError,
)

cdef enum:
    FIRST_BUCKET_COUNT = 16
    NONE = -1

CachedBatchRange = namedtuple(
    "CachedBatchRange", "first_sequence last_sequence first_offset last_offset timestamp"
)


cdef inline uint32_t bucket_hash(int64_t producer_id) noexcept nogil:
    """Java's Long.hashCode, spread as HashMap.hash does."""
    cdef uint64_t bits = <uint64_t>producer_id
    cdef uint32_t folded = <uint32_t>(bits ^ (bits >> 32))
    return folded ^ (folded >> 16)


cdef inline int32_t last_sequence_of(const BatchHeader* header) noexcept nogil:
    """Kafka's incrementSequence: behind 2147483647 comes 0; -1 (none) stays."""
    cdef int64_t last
    if header.base_sequence == NONE:
        return NONE
    last = header.base_sequence + (header.last_offset - header.base_offset)
    return <int32_t>(last if last <= INT32_MAX else last - INT32_MAX - 1)


cdef class ProducerState:
    """Producers of one log, their last batches and their open transactions."""

    def __cinit__(self, int64_t expiration_ms=86400000):
        self.expiration_ms = expiration_ms
        self.end_offset = 0
        self.producer_count = 0
        self.bucket_count = 0
        self.buckets = NULL
        memset(&self.ongoing, 0, sizeof(TransactionList))
        memset(&self.unreplicated, 0, sizeof(TransactionList))

    def __dealloc__(self):
        self.forget_producers()
        free(self.buckets)
        free(self.ongoing.places)
        free(self.unreplicated.places)

    cdef void forget_producers(self) noexcept nogil:
        cdef Py_ssize_t bucket
        cdef Producer* producer
        for bucket in range(self.bucket_count):
            while self.buckets[bucket] != NULL:
                producer = self.buckets[bucket]
                self.buckets[bucket] = producer.next
                free(producer)
        self.producer_count = 0

    cdef Producer* find(self, int64_t producer_id) noexcept nogil:
        cdef Producer* producer
        if self.bucket_count == 0:
            return NULL
        producer = self.buckets[bucket_hash(producer_id) & <uint32_t>(self.bucket_count - 1)]
        while producer != NULL and producer.producer_id != producer_id:
            producer = producer.next
        return producer

    cdef int grow(self) except -1 nogil:
        # Each new bucket takes from one old one only, so the order inside a bucket is kept.
        cdef Py_ssize_t count = self.bucket_count * 2 if self.bucket_count else FIRST_BUCKET_COUNT
        cdef Producer** grown = <Producer**>calloc(<size_t>count, sizeof(Producer*))
        cdef Producer* producer
        cdef Producer* following
        cdef Producer** tail
        cdef Py_ssize_t bucket
        if grown == NULL:
            with gil:
                raise MemoryError()
        for bucket in range(self.bucket_count):
            producer = self.buckets[bucket]
            while producer != NULL:
                following = producer.next
                producer.next = NULL
                tail = &grown[bucket_hash(producer.producer_id) & <uint32_t>(count - 1)]
                while tail[0] != NULL:
                    tail = &tail[0].next
                tail[0] = producer
                producer = following
        free(self.buckets)
        self.buckets = grown
        self.bucket_count = count
        return 0

    cdef Producer* find_or_add(self, int64_t producer_id) except NULL nogil:
        cdef Producer* producer = self.find(producer_id)
        cdef Producer** tail
        if producer != NULL:
            return producer
        if self.bucket_count == 0:
            self.grow()
        producer = <Producer*>calloc(1, sizeof(Producer))
        if producer == NULL:
            with gil:
                raise MemoryError()
        producer.producer_id = producer_id
        producer.producer_epoch = NONE
        producer.coordinator_epoch = NONE
        producer.last_timestamp = NONE
        producer.transaction_start = NONE
        tail = &self.buckets[bucket_hash(producer_id) & <uint32_t>(self.bucket_count - 1)]
        while tail[0] != NULL:
            tail = &tail[0].next
        tail[0] = producer
        self.producer_count += 1
        if self.producer_count > self.bucket_count // 4 * 3:
            self.grow()
        return producer

    cdef object duplicate_of(self, const BatchHeader* header):
        cdef const Producer* producer
        cdef const CachedBatch* batch
        cdef int place
        cdef int32_t last_sequence = last_sequence_of(header)
        if header.producer_id < 0 or header.base_sequence < 0 or header.attributes & CONTROL_BIT:
            return None
        producer = self.find(header.producer_id)
        if producer == NULL or producer.producer_epoch != header.producer_epoch:
            return None
        for place in range(producer.batch_count):
            batch = &producer.batches[place]
            if (
                batch.last_sequence == last_sequence
                and first_sequence_of(batch) == header.base_sequence
            ):
                return batch.last_offset - batch.offset_delta, batch.last_offset, batch.timestamp
        return None

    cdef int check(self, const BatchHeader* header, bint client_origin) except -1:
        cdef const Producer* producer
        if header.producer_id < 0:
            return 0
        if header.attributes & CONTROL_BIT and not is_end_marker(header):
            return 0
        producer = self.find(header.producer_id)
        if producer == NULL:
            return 0
        if header.producer_epoch < producer.producer_epoch:
            raise InvalidProducerEpochError(
                f"expected producer {header.producer_id} to write with epoch "
                f"{producer.producer_epoch} or later, found {header.producer_epoch}: a newer "
                f"producer has taken its id over; stop this one",
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                known_epoch=producer.producer_epoch,
            )
        if header.attributes & CONTROL_BIT:
            if header.coordinator_epoch < producer.coordinator_epoch:
                raise TransactionCoordinatorFencedError(
                    f"expected an end marker of coordinator epoch {producer.coordinator_epoch} or "
                    f"later for producer {header.producer_id}, found {header.coordinator_epoch}",
                    producer_id=header.producer_id,
                    coordinator_epoch=header.coordinator_epoch,
                )
            return 0
        if client_origin:
            check_sequence(producer, header)
        if producer.transaction_start >= 0 and not header.attributes & TRANSACTIONAL_BIT:
            raise InvalidTransactionStateError(
                f"expected a transactional batch from producer {header.producer_id}, whose "
                f"transaction has been open since offset {producer.transaction_start}, found a "
                f"plain one; commit or abort first",
                producer_id=header.producer_id,
                offset=producer.transaction_start,
            )
        return 0

    cdef int end_transaction(
        self, Producer* producer, const BatchHeader* header, Transaction* completed
    ) except -1 nogil:
        # The caller has found is_end_marker(header). Returns 1 if a transaction was open.
        cdef bint was_open = producer.transaction_start >= 0
        if was_open:
            completed.producer_id = producer.producer_id
            completed.first_offset = producer.transaction_start
            completed.last_offset = header.base_offset
            completed.aborted = header.control_type == CONTROL_ABORT
            remove_transaction(&self.ongoing, completed.first_offset, producer.producer_id)
            completed.last_stable_offset = first_open(&self.ongoing)
            if completed.last_stable_offset == NONE:
                completed.last_stable_offset = header.base_offset + 1
            complete_transaction(&self.unreplicated, completed)
        if producer.producer_epoch != header.producer_epoch:
            producer.batch_count = 0
            producer.producer_epoch = header.producer_epoch
        producer.coordinator_epoch = header.coordinator_epoch
        producer.last_timestamp = header.max_timestamp
        producer.transaction_start = NONE
        return was_open

    cdef int apply(self, const BatchHeader* header, Transaction* completed) except -1 nogil:
        cdef Producer* producer
        cdef CachedBatch* batch
        if header.producer_id < 0:
            self.end_offset = header.last_offset + 1
            return 0
        producer = self.find_or_add(header.producer_id)
        self.end_offset = header.last_offset + 1
        if header.attributes & CONTROL_BIT:
            # A marker without records: compaction has removed its whole transaction.
            return self.end_transaction(producer, header, completed) if is_end_marker(header) else 0
        if producer.producer_epoch != header.producer_epoch:
            producer.batch_count = 0
            producer.producer_epoch = header.producer_epoch
        if producer.batch_count == CACHED_BATCHES:
            producer.batch_count -= 1
            memmove(
                &producer.batches[0],
                &producer.batches[1],
                <size_t>producer.batch_count * sizeof(CachedBatch),
            )
        batch = &producer.batches[producer.batch_count]
        producer.batch_count += 1
        batch.last_sequence = last_sequence_of(header)
        batch.last_offset = header.last_offset
        batch.offset_delta = <int32_t>(header.last_offset - header.base_offset)
        batch.timestamp = header.max_timestamp
        producer.last_timestamp = header.max_timestamp
        if header.attributes & TRANSACTIONAL_BIT and producer.transaction_start < 0:
            open_transaction(&self.ongoing, header.base_offset, header.producer_id)
            producer.transaction_start = header.base_offset
        return 0

    cdef object update(self, const BatchHeader* header):
        cdef Transaction completed
        if self.apply(header, &completed) == 0:
            return None
        return completed_of(&completed)

    def replay(self, headers):
        """Apply batches in order; `headers` is an array of record_batch.HEADER_DTYPE.

        Nothing is enforced: what is in the log has been accepted. Returns the transactions that
        ended, in order. The GIL is released.
        """
        cdef const uint8_t[::1] view = header_bytes(headers)
        cdef Py_ssize_t count = view.shape[0] // <Py_ssize_t>sizeof(BatchHeader)
        cdef Py_ssize_t place
        cdef const BatchHeader* header
        cdef Transaction completed
        ended = []
        if count == 0:
            return ended
        header = <const BatchHeader*>&view[0]
        with nogil:
            for place in range(count):
                if self.apply(header + place, &completed):
                    with gil:
                        ended.append(completed_of(&completed))
        return ended

    def check_batch(self, header, bint client_origin):
        """Raise the error with which a leader refuses the batch; `header` is an array of one.

        With `client_origin`, sequences are checked too. Errors: InvalidProducerEpochError,
        OutOfOrderSequenceError, InvalidTransactionStateError, TransactionCoordinatorFencedError.
        """
        cdef const uint8_t[::1] view = header_bytes(header)
        self.check(<const BatchHeader*>&view[0], client_origin)

    def duplicate_of_batch(self, header):
        """(base_offset, last_offset, timestamp) of the stored batch that this one repeats."""
        cdef const uint8_t[::1] view = header_bytes(header)
        return self.duplicate_of(<const BatchHeader*>&view[0])

    def first_unstable_offset(self, int64_t high_watermark):
        """First offset that read_committed may not pass, None if there is none.

        That is the smallest first offset of an open transaction, or of one whose end marker is at
        or above `high_watermark`.
        """
        cdef int64_t first = first_open(&self.ongoing)
        cdef int64_t replicating = first_not_below(&self.unreplicated, high_watermark)
        if first == NONE or (replicating != NONE and replicating < first):
            first = replicating
        return None if first == NONE else first

    cpdef void release_below(self, int64_t high_watermark) noexcept:
        """Forget the completed transactions whose end marker is below `high_watermark`."""
        drop_below(&self.unreplicated, high_watermark)

    def open_transactions(self):
        """(producer_id, first_offset) of the open transactions, by first offset."""
        cdef Py_ssize_t place
        return [
            (self.ongoing.places[place].producer_id, self.ongoing.places[place].first_offset)
            for place in range(self.ongoing.first, self.ongoing.end)
            if self.ongoing.places[place].producer_id >= 0
        ]

    def to_snapshot(self):
        """Content of the `.snapshot` file for `end_offset`: the bytes that Kafka would write."""
        cdef bytes content = new_snapshot(self.producer_count)
        cdef uint8_t* at = snapshot_entries_at(content)
        cdef const Producer* producer
        cdef Py_ssize_t bucket
        for bucket in range(self.bucket_count):
            producer = self.buckets[bucket]
            while producer != NULL:
                store_entry(at, producer)
                at += SNAPSHOT_ENTRY_BYTES
                producer = producer.next
        seal_snapshot(content)
        return content

    def load_snapshot(self, bytes content not None, int64_t now_ms, str path=None):
        """Replace the state by that of a snapshot, without the producers expired at `now_ms`.

        Raises CorruptFileError and changes nothing if `content` is damaged. The caller sets
        `end_offset` from the file's name.
        """
        cdef Py_ssize_t count = check_snapshot(content, path)
        cdef const uint8_t* at = snapshot_entries_at(content)
        cdef Producer loaded
        cdef Producer* producer
        cdef Producer* following
        cdef Py_ssize_t place, bucket
        self.clear()
        for place in range(count):
            load_entry(at + place * SNAPSHOT_ENTRY_BYTES, &loaded)
            if self.expired(&loaded, now_ms):
                continue
            producer = self.find_or_add(loaded.producer_id)
            following = producer.next
            producer[0] = loaded
            producer.next = following
        # Entries come in the order of a hash table, and one producer may, damaged as the file is,
        # be named twice: what counts is what the table holds in the end.
        for bucket in range(self.bucket_count):
            producer = self.buckets[bucket]
            while producer != NULL:
                if producer.transaction_start >= 0:
                    add_transaction(
                        &self.ongoing, producer.transaction_start, producer.producer_id
                    )
                producer = producer.next
        sort_transactions(&self.ongoing)

    cdef bint expired(self, const Producer* producer, int64_t now_ms) noexcept nogil:
        if producer.transaction_start >= 0:
            return False
        # Unsigned: a timestamp that a client made up may make the difference overflow.
        return <int64_t>(<uint64_t>now_ms - <uint64_t>producer.last_timestamp) >= self.expiration_ms

    def remove_expired(self, int64_t now_ms):
        """Forget producers idle for `expiration_ms` with no open transaction; returns how many."""
        cdef Py_ssize_t before = self.producer_count
        cdef Py_ssize_t bucket
        cdef Producer** link
        cdef Producer* producer
        for bucket in range(self.bucket_count):
            link = &self.buckets[bucket]
            while link[0] != NULL:
                producer = link[0]
                if self.expired(producer, now_ms):
                    link[0] = producer.next
                    free(producer)
                    self.producer_count -= 1
                else:
                    link = &producer.next
        return before - self.producer_count

    def emptied(self):
        """A state of no producers, with as many buckets: a Java HashMap's table does not shrink."""
        cdef ProducerState fresh = ProducerState(self.expiration_ms)
        while fresh.bucket_count < self.bucket_count:
            fresh.grow()
        return fresh

    def clear(self):
        """Forget all producers and transactions; `end_offset` stays."""
        self.forget_producers()
        clear_transactions(&self.ongoing)
        clear_transactions(&self.unreplicated)

    def entries(self):
        """Every producer's last batch, in the order of the snapshot."""
        cdef const Producer* producer
        cdef Py_ssize_t bucket
        found = []
        for bucket in range(self.bucket_count):
            producer = self.buckets[bucket]
            while producer != NULL:
                found.append(entry_of(producer))
                producer = producer.next
        return found

    def cached_batches(self, int64_t producer_id):
        """The batches by which a repeat is recognised, the oldest first; at most five."""
        cdef const Producer* producer = self.find(producer_id)
        cdef const CachedBatch* batch
        cdef int place
        found = []
        if producer != NULL:
            for place in range(producer.batch_count):
                batch = &producer.batches[place]
                found.append(
                    CachedBatchRange(
                        first_sequence_of(batch), batch.last_sequence,
                        batch.last_offset - batch.offset_delta, batch.last_offset, batch.timestamp,
                    )
                )
        return found


cdef inline bint is_end_marker(const BatchHeader* header) noexcept nogil:
    return header.control_type == CONTROL_ABORT or header.control_type == CONTROL_COMMIT


cdef int check_sequence(const Producer* producer, const BatchHeader* header) except -1:
    """A new epoch starts at sequence 0; the same one goes on where it was (KIP-98)."""
    cdef int64_t last = NONE
    cdef int64_t wanted = 0
    if producer.producer_epoch == NONE:
        return 0
    if header.producer_epoch == producer.producer_epoch:
        if producer.batch_count:
            last = producer.batches[producer.batch_count - 1].last_sequence
        wanted = 0 if last == INT32_MAX else last + 1
    if header.base_sequence != wanted:
        raise OutOfOrderSequenceError(
            f"expected sequence {wanted} next from producer {header.producer_id} epoch "
            f"{header.producer_epoch}, found {header.base_sequence}; batches were lost or "
            f"reordered on the way",
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            expected_sequence=wanted,
            base_sequence=header.base_sequence,
        )
    return 0


cdef object header_bytes(object headers):
    """The array as contiguous bytes; UsageError unless its entries are as long as a BatchHeader."""
    found = np.ascontiguousarray(headers).reshape(-1)
    if found.dtype.itemsize != sizeof(BatchHeader):
        raise UsageError(
            f"expected an array of record_batch.HEADER_DTYPE ({sizeof(BatchHeader)} bytes each), "
            f"found {found.dtype}"
        )
    return found.view(np.uint8)
