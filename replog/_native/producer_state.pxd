# What the idempotent and transactional producers of one log have written last, in memory.

from libc.stdint cimport int64_t

from replog._native.producer_snapshot cimport Producer
from replog._native.record_batch cimport BatchHeader
from replog._native.transaction_list cimport Transaction, TransactionList

cdef class ProducerState:
    cdef readonly int64_t expiration_ms
    # Exclusive: every batch below it has been applied. The owner of the log moves it, too.
    cdef public int64_t end_offset
    cdef readonly Py_ssize_t producer_count
    # A power of two of buckets; it never shrinks, as a Java HashMap's table does not, because the
    # order of a snapshot's entries follows from it.
    cdef Producer** buckets
    cdef Py_ssize_t bucket_count
    cdef TransactionList ongoing
    # Completed, with the end marker still at or above the high watermark.
    cdef TransactionList unreplicated

    cpdef void release_below(self, int64_t high_watermark) noexcept
    # None, or (base_offset, last_offset, timestamp) of a cached batch with the same epoch and
    # sequences.
    cdef object duplicate_of(self, const BatchHeader* header)
    # Raise the typed error of a batch that may not follow this state (leader only).
    cdef int check(self, const BatchHeader* header, bint client_origin) except -1
    # Apply a written or replayed batch; None, or the CompletedTransaction that it ends.
    cdef object update(self, const BatchHeader* header)
    # The same without the GIL: 1 with *completed filled in, 0, or -1 with MemoryError raised.
    cdef int apply(self, const BatchHeader* header, Transaction* completed) except -1 nogil

    cdef Producer* find(self, int64_t producer_id) noexcept nogil
    cdef Producer* find_or_add(self, int64_t producer_id) except NULL nogil
    cdef int grow(self) except -1 nogil
    cdef void forget_producers(self) noexcept nogil
    cdef bint expired(self, const Producer* producer, int64_t now_ms) noexcept nogil
    cdef int end_transaction(
        self, Producer* producer, const BatchHeader* header, Transaction* completed
    ) except -1 nogil
