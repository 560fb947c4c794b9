# Which columns a reader wants, for those who decode into them.

from replog._native.record_columns cimport COLUMN_COUNT

# Which columns, in which order, as which types.
cdef class Selection:
    cdef int order[COLUMN_COUNT]
    cdef int count
    cdef int wanted
    cdef object schema

# None for all, or different names of columns; UsageError for anything else.
cdef tuple names_of(columns)
cdef Selection select(columns, bint zero_copy)

# Header keys that are not UTF-8: U+FFFD for what cannot be read, as in Kafka's clients.
cdef object with_readable_header_keys(batch)
