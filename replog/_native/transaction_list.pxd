# Transactions of one log by first offset. Zero a TransactionList to start, free its places to end.

from libc.stdint cimport int64_t

cdef struct Transaction:
    int64_t first_offset
    int64_t last_offset        # of its end marker; -1 while it is open
    int64_t producer_id
    int64_t last_stable_offset  # where read_committed may read to when only this one completes
    bint aborted

cdef struct TransactionList:
    # Sorted by first_offset. Invariant: count <= capacity.
    Transaction* places
    Py_ssize_t count
    Py_ssize_t capacity

cdef int insert_transaction(TransactionList* held, const Transaction* added) except -1 nogil
cdef int open_transaction(
    TransactionList* held, int64_t first_offset, int64_t producer_id
) except -1 nogil
cdef void remove_transaction(
    TransactionList* held, int64_t first_offset, int64_t producer_id
) noexcept nogil
# Smallest first offset, of all or of those whose end marker is at or above `offset`; -1 for none.
cdef int64_t first_open(const TransactionList* held) noexcept nogil
cdef int64_t first_not_below(const TransactionList* held, int64_t offset) noexcept nogil
# Drop the completed ones whose end marker is below `offset`.
cdef void drop_below(TransactionList* held, int64_t offset) noexcept nogil
cdef object completed_of(const Transaction* completed)
