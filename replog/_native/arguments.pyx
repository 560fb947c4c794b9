# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Arguments of public calls: what fits becomes a C value, anything else a UsageError.

An integer is what has `__index__` (int, numpy's integers) but no bool: a float would be cut without
a word, and True for an offset is a slip. What is right costs no more than Cython's own conversion;
only what is wrong comes here.
"""

import operator
import os

from cpython.buffer cimport PyBUF_SIMPLE, PyObject_GetBuffer
from libc.stdint cimport int64_t

from replog.errors import UsageError, shown


cdef object index_of(object found):
    # The integer that `found` stands for, or None.
    if isinstance(found, bool) or not hasattr(type(found), "__index__"):
        return None
    try:
        return operator.index(found)
    except Exception:  # an object that only claims to be one, like an array of many
        return None


cdef int64_t converted(
    object found, str name, str where, int64_t low, int64_t high
) except? -1:
    number = index_of(found)
    if number is None or not low <= number <= high:
        raise UsageError(
            f"expected {name} to be an integer from {low} to {high} for {where}, found "
            f"{shown(found)}",
            argument=name,
        )
    return number


cdef bint refuse_flag(object found, str name, str where) except -1:
    # numpy's comparisons give numpy's own bool.
    if type(found).__name__ in ("bool", "bool_"):
        return bool(found)
    raise UsageError(
        f"expected {name} to be True or False for {where}, found {shown(found)}", argument=name
    )


cdef int take_buffer(object found, Py_buffer* view, str name, str where) except -1:
    try:
        PyObject_GetBuffer(found, view, PyBUF_SIMPLE)
    except (TypeError, ValueError, BufferError) as error:
        raise UsageError(
            f"expected {name} to be contiguous bytes (bytes, bytearray, memoryview) for {where}, "
            f"found {shown(found)}: {error}",
            argument=name,
        ) from error
    return 0


def integer(found, str name, str where, int64_t low=0, int64_t high=0x7FFFFFFFFFFFFFFF) -> int:
    """`found` as an int of [low, high]; UsageError naming it."""
    return integer_of(found, name, where, low, high)


def flag(found, str name, str where) -> bool:
    """`found` as a bool; UsageError naming it."""
    return flag_of(found, name, where)


def path_of(found, str name="path") -> str:
    """A path that the system can be asked for, as str. UsageError for bytes, no path, or NUL."""
    try:
        path = os.fspath(found)
    except Exception:  # TypeError, or whatever a __fspath__ of somebody else raises
        path = None
    if not isinstance(path, str):
        advice = "decode bytes with os.fsdecode" if isinstance(found, bytes) else "give a path"
        raise UsageError(
            f"expected {name} to be a str or os.PathLike of str, found {shown(found)}; {advice}",
            argument=name,
        )
    problem = None
    if not path:
        problem = "an empty one"
    elif "\0" in path:
        problem = "one with a NUL character"
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        problem = "one that the file system's encoding cannot express"
    if problem is not None:
        raise UsageError(
            f"expected {name} to be the name of a file or directory, found {problem}: "
            f"{shown(path)}",
            argument=name,
        )
    return path
