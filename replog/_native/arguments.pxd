# Arguments of public calls as C values.

from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t

# `where` says whose argument it is: the path of a log, or another short name.

cdef int64_t converted(
    object found, str name, str where, int64_t low, int64_t high
) except? -1

cdef bint refuse_flag(object found, str name, str where) except -1

# A buffer of contiguous bytes; released by the caller.
cdef int take_buffer(object found, Py_buffer* view, str name, str where) except -1


cdef inline int64_t integer_of(
    object found, str name, str where, int64_t low, int64_t high
) except? -1:
    # Neither a bool nor a float nor anything else takes the short way.
    cdef int overflow = 0
    cdef int64_t number
    if PyLong_CheckExact(found):
        number = PyLong_AsLongLongAndOverflow(found, &overflow)
        if not overflow and low <= number <= high:
            return number
    return converted(found, name, where, low, high)


cdef inline int64_t int64_of(object found, str name, str where) except? -1:
    return integer_of(found, name, where, INT64_MIN, INT64_MAX)


cdef inline int64_t offset_of(object found, str name, str where) except? -1:
    return integer_of(found, name, where, 0, INT64_MAX)


cdef inline int32_t int32_of(object found, str name, str where) except? -1:
    return <int32_t> integer_of(found, name, where, INT32_MIN, INT32_MAX)


cdef inline int32_t epoch_of(object found, str name, str where) except? -1:
    return <int32_t> integer_of(found, name, where, 0, INT32_MAX)


cdef inline bint flag_of(object found, str name, str where) except -1:
    if found is False:
        return False
    if found is True:
        return True
    return refuse_flag(found, name, where)
