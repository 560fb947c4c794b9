# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Transactions of one log, open or completed, sorted by first offset: a growable C array.

There are as many as producers with a transaction under way, so places are found by walking.
"""

from libc.stdlib cimport realloc
from libc.string cimport memmove

from collections import namedtuple

cdef enum:
    NONE = -1

CompletedTransaction = namedtuple(
    "CompletedTransaction", "producer_id first_offset last_offset aborted last_stable_offset"
)


cdef int insert_transaction(TransactionList* held, const Transaction* added) except -1 nogil:
    cdef Py_ssize_t place = held.count
    cdef Py_ssize_t capacity
    cdef void* grown
    if held.count == held.capacity:
        capacity = held.capacity * 2 if held.capacity else 8
        grown = realloc(held.places, <size_t>capacity * sizeof(Transaction))
        if grown == NULL:
            with gil:
                raise MemoryError()
        held.places = <Transaction*>grown
        held.capacity = capacity
    while place and held.places[place - 1].first_offset > added.first_offset:
        place -= 1
    memmove(
        held.places + place + 1,
        held.places + place,
        <size_t>(held.count - place) * sizeof(Transaction),
    )
    held.places[place] = added[0]
    held.count += 1
    return 0


cdef void remove_transaction(
    TransactionList* held, int64_t first_offset, int64_t producer_id
) noexcept nogil:
    cdef Py_ssize_t place
    for place in range(held.count):
        if (
            held.places[place].first_offset == first_offset
            and held.places[place].producer_id == producer_id
        ):
            held.count -= 1
            memmove(
                held.places + place,
                held.places + place + 1,
                <size_t>(held.count - place) * sizeof(Transaction),
            )
            return


cdef int open_transaction(
    TransactionList* held, int64_t first_offset, int64_t producer_id
) except -1 nogil:
    cdef Transaction opened
    opened.first_offset = first_offset
    opened.last_offset = NONE
    opened.producer_id = producer_id
    opened.last_stable_offset = NONE
    opened.aborted = False
    return insert_transaction(held, &opened)


cdef int64_t first_open(const TransactionList* held) noexcept nogil:
    return held.places[0].first_offset if held.count else NONE


cdef int64_t first_not_below(const TransactionList* held, int64_t offset) noexcept nogil:
    cdef Py_ssize_t place
    for place in range(held.count):
        if held.places[place].last_offset >= offset:
            return held.places[place].first_offset
    return NONE


cdef void drop_below(TransactionList* held, int64_t offset) noexcept nogil:
    cdef Py_ssize_t kept = 0
    cdef Py_ssize_t place
    for place in range(held.count):
        if held.places[place].last_offset >= offset:
            held.places[kept] = held.places[place]
            kept += 1
    held.count = kept


cdef object completed_of(const Transaction* completed):
    return CompletedTransaction(
        completed.producer_id,
        completed.first_offset,
        completed.last_offset,
        bool(completed.aborted),
        completed.last_stable_offset,
    )
