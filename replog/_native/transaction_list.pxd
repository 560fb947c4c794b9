# Transactions of one log by first offset. Zero a TransactionList to start, free its places to end.

from libc.stdint cimport int64_t

cdef struct Transaction:
    int64_t first_offset
    int64_t last_offset        # of its end marker; -1 while it is open
    int64_t producer_id        # -1 for one that has been removed
    int64_t last_stable_offset  # where read_committed may read to when only this one completes
    bint aborted

cdef struct TransactionList:
    # places[first:end] by first_offset. Invariants: first <= end <= capacity; removed of them are
    # removed, and places[first] is not.
    Transaction* places
    Py_ssize_t first
    Py_ssize_t end
    Py_ssize_t removed
    Py_ssize_t capacity

# Open ones.
cdef int open_transaction(
    TransactionList* held, int64_t first_offset, int64_t producer_id
) except -1 nogil
# As open_transaction, in any order; the list is not to be asked before sort_transactions.
cdef int add_transaction(
    TransactionList* held, int64_t first_offset, int64_t producer_id
) except -1 nogil
cdef void sort_transactions(TransactionList* held) noexcept nogil
cdef void remove_transaction(
    TransactionList* held, int64_t first_offset, int64_t producer_id
) noexcept nogil
# Smallest first offset; -1 for none.
cdef int64_t first_open(const TransactionList* held) noexcept nogil

# Completed ones, whose end markers rise.
cdef int complete_transaction(TransactionList* held, const Transaction* completed) except -1 nogil
# Smallest first offset of those whose end marker is at or above `offset`; -1 for none.
cdef int64_t first_not_below(const TransactionList* held, int64_t offset) noexcept nogil
# Drop those whose end marker is below `offset`.
cdef void drop_below(TransactionList* held, int64_t offset) noexcept nogil

cdef void clear_transactions(TransactionList* held) noexcept nogil
cdef object completed_of(const Transaction* completed)
