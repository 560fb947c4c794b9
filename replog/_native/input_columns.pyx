# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Columns of records as pointers: lists of bytes, Arrow arrays and numpy arrays seen the same way.

A `Column` describes rows of byte strings without copying them, a `Rows` all columns of an append.
Both keep the memory alive that they point to. Lengths of buffers are checked here, what the offsets
inside them say when they are followed (c/record_encoder.c). Columns out of Python sequences borrow
from the objects in them: they hold only as long as the GIL is not let go.
"""

import numpy as np
import pyarrow as pa

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from cpython.list cimport PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int64_t, intptr_t, uint8_t
from libc.stdlib cimport free, malloc

from replog._native.arguments cimport int64_of

from replog.errors import UsageError, shown

cdef extern from "c/record_encoder.h" nogil:
    enum:
        REPLOG_COLUMN_NULLS
        REPLOG_COLUMN_OFFSETS32
        REPLOG_COLUMN_OFFSETS64
        REPLOG_COLUMN_FIXED
        REPLOG_COLUMN_STRIPPED
        REPLOG_COLUMN_VIEWS
        REPLOG_COLUMN_SLICES

cdef dict ARROW_OFFSETS = {
    pa.BinaryArray: REPLOG_COLUMN_OFFSETS32,
    pa.StringArray: REPLOG_COLUMN_OFFSETS32,
    pa.LargeBinaryArray: REPLOG_COLUMN_OFFSETS64,
    pa.LargeStringArray: REPLOG_COLUMN_OFFSETS64,
}
cdef tuple ARROW_VIEWS = (pa.BinaryViewArray, pa.StringViewArray)
cdef tuple ARROW_STRINGS = (pa.StringArray, pa.LargeStringArray, pa.StringViewArray)
cdef tuple ARROW_LISTS = (pa.ListArray, pa.LargeListArray)   # a MapArray is a ListArray


cdef object wrong_type(str what, str expected, object found):
    kind = f"{type(found).__name__} of {found.type}" if isinstance(found, pa.Array) else (
        f"ndarray of {found.dtype} with {found.ndim} dimensions" if isinstance(found, np.ndarray)
        else type(found).__name__
    )
    return UsageError(f"expected {expected} as {what}, found {kind}", argument=what)


cdef object one_array(object source, str what):
    # The Arrow array behind an Array, a ChunkedArray or an object with Arrow's interface, or None.
    try:
        return array_behind(source)
    except Exception as error:  # Arrow's own, or whatever a foreign object raises
        raise UsageError(
            f"expected {what} that Arrow can read as one array, found {type(source).__name__}: "
            f"{error}; give fewer rows at once, or another kind of column",
            argument=what,
        ) from error


cdef object array_behind(object source):
    if isinstance(source, pa.Array):
        return source.storage if isinstance(source, pa.ExtensionArray) else source
    if isinstance(source, pa.ChunkedArray):
        chunks = source.chunks
        if len(chunks) == 1:
            return array_behind(chunks[0])
        if not chunks:
            return array_behind(pa.array([], source.type))
        joined = pa.concat_arrays(chunks)
        return array_behind(joined)
    if hasattr(source, "__arrow_c_array__"):
        return array_behind(pa.array(source))
    if hasattr(source, "__arrow_c_stream__"):
        return array_behind(pa.chunked_array(source))
    return None


cdef class Column:

    def __dealloc__(self):
        free(self.owned)
        if self.has_view:
            PyBuffer_Release(&self.view)

    cdef int slices_of(self, int64_t count) except -1:
        # Room for `count` slices, owned by the column.
        self.owned = <replog_slice*>malloc(max(count, 1) * sizeof(replog_slice))
        if self.owned is NULL:
            raise MemoryError()
        self.c.slices = self.owned
        self.c.slice_count = count
        return 0

    cdef int from_sequence(self, object source, str what) except -1:
        cdef bint is_list = PyList_CheckExact(source)
        cdef int64_t count = PyList_GET_SIZE(source) if is_list else PyTuple_GET_SIZE(source)
        cdef int64_t row
        cdef PyObject* item
        cdef replog_slice* slice_at
        self.slices_of(count)
        self.c.kind = REPLOG_COLUMN_SLICES
        self.source = source
        self.row_count = count
        self.borrows = True
        slice_at = self.owned
        for row in range(count):
            # Borrowed: nothing between here and the copy runs Python code or lets go of the GIL.
            item = PyList_GET_ITEM(source, row) if is_list else PyTuple_GET_ITEM(source, row)
            if item is <PyObject*>None:
                slice_at.bytes = NULL
                slice_at.length = -1
            elif PyBytes_Check(<object>item):
                slice_at.bytes = <const uint8_t*>PyBytes_AS_STRING(<object>item)
                slice_at.length = PyBytes_GET_SIZE(<object>item)
            else:
                raise wrong_type(f"{what}[{row}]", "bytes or None", <object>item)
            slice_at += 1
        return 0

    cdef int from_arrow(self, object array, str what) except -1:
        cdef int64_t places_width
        kind = ARROW_OFFSETS.get(type(array))
        self.source = array
        self.row_count = len(array)
        if self.row_count == 0 or isinstance(array, pa.NullArray):
            self.c.kind = REPLOG_COLUMN_NULLS
            return 0
        if isinstance(array, pa.DictionaryArray):
            return self.from_arrow(array.dictionary_decode(), what)
        self.c.first = array.offset
        buffers = array.buffers()
        if buffers[0] is not None:
            self.c.validity = <const uint8_t*>self.address(
                buffers[0], (self.c.first + self.row_count + 7) // 8, what
            )
        if kind is not None:
            self.c.kind = kind
            places_width = 4 if self.c.kind == REPLOG_COLUMN_OFFSETS32 else 8
            self.c.places = self.address(
                buffers[1], (self.c.first + self.row_count + 1) * places_width, what
            )
            if buffers[2] is not None:
                self.c.bytes = <const uint8_t*>self.address(buffers[2], 0, what)
                self.c.bytes_length = buffers[2].size
        elif isinstance(array, ARROW_VIEWS):
            self.c.kind = REPLOG_COLUMN_VIEWS
            self.c.places = self.address(buffers[1], (self.c.first + self.row_count) * 16, what)
            self.slices_of(len(buffers) - 2)
            for place, buffer in enumerate(buffers[2:]):
                self.owned[<int64_t>place].bytes = <const uint8_t*>self.address(buffer, 0, what)
                self.owned[<int64_t>place].length = buffer.size
        elif isinstance(array, pa.FixedSizeBinaryArray):
            self.c.kind = REPLOG_COLUMN_FIXED
            self.c.width = array.type.byte_width
            self.c.bytes = <const uint8_t*>self.address(
                buffers[1], (self.c.first + self.row_count) * self.c.width, what
            )
        else:
            raise wrong_type(what, "a binary or string array", array)
        return 0

    cdef void* address(self, object buffer, int64_t size, str what) except? NULL:
        # Address of an Arrow buffer that must hold `size` bytes. The array keeps it alive.
        if buffer is None and size == 0:
            return NULL
        if buffer is None or buffer.size < size:
            raise UsageError(
                f"expected a buffer of {size} bytes under {what}, found "
                f"{0 if buffer is None else buffer.size}; the Arrow array is damaged"
            )
        return <void*><intptr_t>buffer.address

    cdef int from_numpy(self, object array, str what) except -1:
        if isinstance(array, np.ma.MaskedArray):
            if array.ndim == 1:
                return self.from_sequence(array.tolist(), what)  # what is masked becomes None
            array = unmasked(array, what)
        if array.dtype.kind == "S" and array.ndim == 1:
            self.c.kind = REPLOG_COLUMN_STRIPPED
            self.c.width = array.dtype.itemsize
        elif array.dtype == np.uint8 and array.ndim == 2:
            self.c.kind = REPLOG_COLUMN_FIXED
            self.c.width = array.shape[1]
        elif array.dtype.kind == "O" and array.ndim == 1:
            return self.from_sequence(array.tolist(), what)
        else:
            raise wrong_type(what, "a numpy array of S strings or a table of uint8", array)
        self.row_count = len(array)
        array = np.ascontiguousarray(array)
        PyObject_GetBuffer(array, &self.view, PyBUF_SIMPLE)
        self.has_view = True
        self.c.bytes = <const uint8_t*>self.view.buf
        self.c.bytes_length = self.view.len
        return 0


cdef object unmasked(object array, str what):
    # The numbers of a masked array that masks none of them.
    if np.ma.is_masked(array):
        raise UsageError(
            f"expected {what} without masked entries, found {np.ma.count_masked(array)}; fill "
            f"them first",
            argument=what,
        )
    return np.ma.getdata(array)


cdef Column column_of(object source, str what, int64_t row_count):
    # row_count: rows that a missing column (None) has, and that any other must have; -1 for any.
    cdef Column column = Column.__new__(Column)
    if source is None and row_count >= 0:
        column.row_count = row_count
        return column
    if PyList_CheckExact(source) or PyTuple_CheckExact(source):
        column.from_sequence(source, what)
    elif isinstance(source, np.ndarray):
        column.from_numpy(source, what)
    else:
        array = one_array(source, what)
        if array is None:
            raise wrong_type(
                what, "a list or tuple of bytes, an Arrow array of binary or a numpy array", source
            )
        column.from_arrow(array, what)
    if row_count >= 0 and column.row_count != row_count:
        raise UsageError(
            f"expected as many {what} as values ({row_count}), found {column.row_count}"
        )
    return column


cdef class Rows:

    def __dealloc__(self):
        free(self.owned_ranges)

    cdef int take_values_and_keys(self, object values, object keys) except -1:
        cdef Column value_column = column_of(values, "values", -1)
        cdef Column key_column = column_of(keys, "keys", value_column.row_count)
        self.columns = [value_column, key_column]
        self.c.count = value_column.row_count
        self.c.values = value_column.c
        self.c.keys = key_column.c
        self.borrows = value_column.borrows or key_column.borrows
        return 0

    cdef int take_timestamps(self, object timestamps, int64_t now_ms) except -1:
        cdef Column column
        self.c.timestamp = now_ms
        if timestamps is None:
            return 0
        if isinstance(timestamps, (int, np.integer)):
            self.c.timestamp = int64_of(timestamps, "timestamps", "an append (ms since 1970)")
            return 0
        if isinstance(timestamps, np.datetime64):
            self.c.timestamp = milliseconds_of(np.asarray([timestamps]))[0]
            return 0
        column = int64_column(timestamps)
        if column.row_count != self.c.count:
            raise UsageError(
                f"expected as many timestamps as values ({self.c.count}), found {column.row_count}"
            )
        self.columns.append(column)
        self.c.timestamps = <const int64_t*>column.view.buf
        return 0

    cdef int take_headers(self, object headers) except -1:
        cdef Column key_column, value_column
        if headers is None:
            return 0
        if isinstance(headers, (list, tuple)):
            key_column, value_column = self.headers_from_sequence(headers)
        else:
            array = one_array(headers, "headers")
            if array is None or not isinstance(array, ARROW_LISTS):
                raise wrong_type(
                    "headers",
                    "a list with a sequence of (str, bytes or None) per record, or an Arrow "
                    "list<struct<key, value>>",
                    headers if array is None else array,
                )
            key_column, value_column = self.headers_from_arrow(array)
        self.columns += [key_column, value_column]
        self.c.header_ranges = self.owned_ranges
        self.c.header_count = key_column.row_count
        self.c.header_keys = key_column.c
        self.c.header_values = value_column.c
        self.borrows = self.borrows or key_column.borrows or value_column.borrows
        return 0

    cdef int ranges_for(self, int64_t count) except -1:
        if count != self.c.count:
            raise UsageError(f"expected as many headers as values ({self.c.count}), found {count}")
        self.owned_ranges = <int64_t*>malloc(max(2 * count, 1) * sizeof(int64_t))
        if self.owned_ranges is NULL:
            raise MemoryError()
        return 0

    cdef tuple headers_from_sequence(self, object headers):
        cdef list keys = []
        cdef list values = []
        cdef int64_t row = 0
        self.ranges_for(len(headers))
        for row in range(self.c.count):
            self.owned_ranges[2 * row] = len(keys)
            of_record = headers[row]
            if of_record is None:
                of_record = ()
            elif isinstance(of_record, dict):
                of_record = list(of_record.items())
            elif not isinstance(of_record, (list, tuple)):
                raise wrong_type(
                    f"headers[{row}]", "a list or tuple of (str, bytes or None), a dict or None",
                    of_record,
                )
            for pair in of_record:
                if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                    raise wrong_type(f"headers[{row}]", "pairs of (str, bytes or None)", pair)
                if not isinstance(pair[0], str):
                    raise wrong_type(f"a header key in headers[{row}]", "str", pair[0])
                try:
                    keys.append(str.encode(pair[0]))
                except UnicodeEncodeError as error:
                    raise UsageError(
                        f"expected a header key in headers[{row}] that UTF-8 can express, found "
                        f"{shown(pair[0])}: {error.reason}",
                        argument="headers",
                    ) from error
                values.append(pair[1])
            self.owned_ranges[2 * row + 1] = len(keys)
        return column_of(keys, "header keys", -1), column_of(values, "header values", -1)

    cdef tuple headers_from_arrow(self, object array):
        cdef int64_t row
        cdef const int64_t[::1] places
        cdef const uint8_t[::1] present
        entries = array.values
        self.ranges_for(len(array))
        if not isinstance(entries, pa.StructArray) or entries.type.num_fields != 2:
            raise wrong_type("headers", "an Arrow list<struct<key, value>>", array)
        keys = one_array(entries.field(0), "header keys")
        if isinstance(keys, pa.DictionaryArray):
            keys = keys.dictionary_decode()
        if len(keys) and not isinstance(keys, ARROW_STRINGS):
            raise wrong_type("header keys", "an Arrow array of strings", keys)
        if entries.null_count:
            raise UsageError("expected pairs of key and value in headers, found a null entry")
        places = array.offsets.to_numpy().astype(np.int64)
        present = array.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
        for row in range(self.c.count):
            # A null list may still span entries; they are not the record's.
            self.owned_ranges[2 * row] = places[row] if present[row] else 0
            self.owned_ranges[2 * row + 1] = places[row + 1] if present[row] else 0
        return column_of(keys, "header keys", -1), column_of(entries.field(1), "header values", -1)


cdef object milliseconds_of(object moments):
    # A datetime64 array as int64 milliseconds, where nothing is lost by that.
    missing = int(np.isnat(moments).sum())
    if missing:
        raise UsageError(
            f"expected timestamps without NaT, found {missing}; use -1 for a record without one",
            argument="timestamps",
        )
    stamps = moments.astype("datetime64[ms]")
    if not np.array_equal(stamps.astype(moments.dtype), moments):
        raise UsageError(
            f"expected timestamps of whole milliseconds in 64 bits, found {moments.dtype} with "
            f"finer or farther ones; cast them to datetime64[ms] or timestamp[ms]",
            argument="timestamps",
        )
    return stamps.view(np.int64)


cdef object numbers_of(object source):
    # The numpy array behind timestamps, of any type.
    if isinstance(source, (list, tuple)):
        try:
            return np.asarray(source) if len(source) else np.empty(0, np.int64)
        except Exception:  # lists of unequal lengths, foreign objects
            raise wrong_type("timestamps", "milliseconds as int", source) from None
    if isinstance(source, np.ma.MaskedArray):
        return unmasked(source, "timestamps")
    if isinstance(source, np.ndarray):
        return source
    array = one_array(source, "timestamps")
    if array is None or not (array.type == pa.int64() or pa.types.is_timestamp(array.type)):
        raise wrong_type(
            "timestamps", "milliseconds as int, int64 or timestamp[ms]",
            source if array is None else array,
        )
    if array.null_count:
        raise UsageError(
            f"expected timestamps without nulls, found {array.null_count}", argument="timestamps"
        )
    numbers = np.empty(0, np.int64) if not len(array) else (
        np.frombuffer(array.buffers()[1], np.int64)[array.offset:array.offset + len(array)]
    )
    return numbers if array.type == pa.int64() else (
        numbers.view(f"datetime64[{array.type.unit}]")
    )


cdef Column int64_column(object source):
    # A contiguous buffer of int64 milliseconds.
    cdef Column column = Column.__new__(Column)
    numbers = numbers_of(source)
    if numbers.ndim == 1 and numbers.dtype.kind == "M":
        numbers = milliseconds_of(numbers)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or numbers.dtype == np.uint64:
        raise wrong_type("timestamps", "milliseconds as int, int64 or timestamp[ms]", numbers)
    numbers = np.ascontiguousarray(numbers, np.int64)
    PyObject_GetBuffer(numbers, &column.view, PyBUF_SIMPLE)
    column.has_view = True
    column.row_count = len(numbers)
    return column
