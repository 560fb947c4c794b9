# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Transactions of one log, open or completed, sorted by first offset: a growable C array.

Each operation costs the logarithm of their number at most, on average over many: a hundred thousand
producers may have one under way. Open ones begin at rising offsets and end in any order: one that
ends is marked as removed, and its place is freed with many others. Of completed ones only the
smallest first offset behind an end marker is ever asked for, and end markers rise: one that begins
behind a later one is never the answer, and is not kept.
"""

from libc.stdlib cimport qsort, realloc
from libc.string cimport memmove

from collections import namedtuple

cdef enum:
    NONE = -1
    FIRST_CAPACITY = 8

CompletedTransaction = namedtuple(
    "CompletedTransaction", "producer_id first_offset last_offset aborted last_stable_offset"
)


cdef void close_gaps(TransactionList* held) noexcept nogil:
    """Move what is left to the beginning of the array."""
    cdef Py_ssize_t kept = 0
    cdef Py_ssize_t place
    if not held.removed:
        kept = held.end - held.first
        if held.first:  # a list that never held one has no places
            memmove(held.places, held.places + held.first, <size_t>kept * sizeof(Transaction))
    else:
        for place in range(held.first, held.end):
            if held.places[place].producer_id != NONE:
                held.places[kept] = held.places[place]
                kept += 1
    held.first = 0
    held.end = kept
    held.removed = 0


cdef int append_transaction(TransactionList* held, const Transaction* added) except -1 nogil:
    cdef Py_ssize_t capacity
    cdef void* grown
    if held.end == held.capacity and held.first + held.removed > held.capacity // 2:
        close_gaps(held)
    if held.end == held.capacity:
        capacity = held.capacity * 2 if held.capacity else FIRST_CAPACITY
        grown = realloc(held.places, <size_t>capacity * sizeof(Transaction))
        if grown == NULL:
            with gil:
                raise MemoryError()
        held.places = <Transaction*>grown
        held.capacity = capacity
    held.places[held.end] = added[0]
    held.end += 1
    return 0


cdef Py_ssize_t floor_of(const TransactionList* held, int64_t first_offset) noexcept nogil:
    """Place of the first one that begins at `first_offset` or behind it."""
    cdef Py_ssize_t low = held.first
    cdef Py_ssize_t high = held.end
    cdef Py_ssize_t middle
    while low < high:
        middle = (low + high) // 2
        if held.places[middle].first_offset < first_offset:
            low = middle + 1
        else:
            high = middle
    return low


cdef int add_transaction(
    TransactionList* held, int64_t first_offset, int64_t producer_id
) except -1 nogil:
    cdef Transaction opened
    opened.first_offset = first_offset
    opened.last_offset = NONE
    opened.producer_id = producer_id
    opened.last_stable_offset = NONE
    opened.aborted = False
    return append_transaction(held, &opened)


cdef int open_transaction(
    TransactionList* held, int64_t first_offset, int64_t producer_id
) except -1 nogil:
    cdef bint in_order
    in_order = held.first == held.end or held.places[held.end - 1].first_offset <= first_offset
    add_transaction(held, first_offset, producer_id)
    if not in_order:
        sort_transactions(held)
    return 0


cdef int by_first_offset(const void* left, const void* right) noexcept nogil:
    cdef int64_t one = (<const Transaction*>left).first_offset
    cdef int64_t other = (<const Transaction*>right).first_offset
    return (one > other) - (one < other)


cdef void sort_transactions(TransactionList* held) noexcept nogil:
    close_gaps(held)
    if held.end:
        qsort(held.places, <size_t>held.end, sizeof(Transaction), by_first_offset)


cdef void remove_transaction(
    TransactionList* held, int64_t first_offset, int64_t producer_id
) noexcept nogil:
    cdef Py_ssize_t place = floor_of(held, first_offset)
    while place < held.end and held.places[place].producer_id != producer_id:
        if held.places[place].first_offset != first_offset:
            return
        place += 1
    if place == held.end or held.places[place].first_offset != first_offset:
        return
    held.places[place].producer_id = NONE
    held.removed += 1
    while held.first < held.end and held.places[held.first].producer_id == NONE:
        held.first += 1
        held.removed -= 1


cdef int64_t first_open(const TransactionList* held) noexcept nogil:
    return held.places[held.first].first_offset if held.first < held.end else NONE


cdef int complete_transaction(TransactionList* held, const Transaction* completed) except -1 nogil:
    while (
        held.end > held.first and held.places[held.end - 1].first_offset > completed.first_offset
    ):
        held.end -= 1
    return append_transaction(held, completed)


cdef int64_t first_not_below(const TransactionList* held, int64_t offset) noexcept nogil:
    cdef Py_ssize_t low = held.first
    cdef Py_ssize_t high = held.end
    cdef Py_ssize_t middle
    while low < high:
        middle = (low + high) // 2
        if held.places[middle].last_offset < offset:
            low = middle + 1
        else:
            high = middle
    return held.places[low].first_offset if low < held.end else NONE


cdef void drop_below(TransactionList* held, int64_t offset) noexcept nogil:
    while held.first < held.end and held.places[held.first].last_offset < offset:
        held.first += 1


cdef void clear_transactions(TransactionList* held) noexcept nogil:
    held.first = 0
    held.end = 0
    held.removed = 0


cdef object completed_of(const Transaction* completed):
    return CompletedTransaction(
        completed.producer_id,
        completed.first_offset,
        completed.last_offset,
        bool(completed.aborted),
        completed.last_stable_offset,
    )
