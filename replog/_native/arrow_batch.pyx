# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Columns of decoded records as one pyarrow.RecordBatch, through Arrow's C data interface.

One allocation holds all that Arrow needs to find the columns; it and the columns' memory live until
Arrow drops the last reference to any column of the batch, on whatever thread that happens.
"""

from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int64_t, uint8_t, uintptr_t
from libc.string cimport memset

from replog._native.record_columns cimport (
    ALL_NULL, COLUMN_COUNT, KEY, LEADER_EPOCH, OFFSET, SOME_NULLS, TIMESTAMP, TIMESTAMP_TYPE, VALUE,
    BytesColumn, Columns, clear_columns, replog_block, zeros,
)

import pyarrow as pa

cdef object _import_batch = pa.RecordBatch._import_from_c

cdef enum:
    NODES = 16                 # Arrow nodes of a batch, at most
    BUFFERS = 5                # buffers of a node, at most

cdef extern from *:
    """
    #include <stdint.h>
    #ifndef ARROW_C_DATA_INTERFACE
    #define ARROW_C_DATA_INTERFACE
    struct ArrowArray {
      int64_t length;
      int64_t null_count;
      int64_t offset;
      int64_t n_buffers;
      int64_t n_children;
      const void** buffers;
      struct ArrowArray** children;
      struct ArrowArray* dictionary;
      void (*release)(struct ArrowArray*);
      void* private_data;
    };
    #endif
    """
    cdef struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        ArrowArray* dictionary
        void (*release)(ArrowArray*) noexcept nogil
        void* private_data

cdef extern from "Python.h":
    int Py_IsInitialized() nogil

# All that one exported batch needs, in one piece; lives until Arrow releases the root.
cdef struct Exported:
    Columns columns
    PyObject* source                       # what the views point into, NULL without
    ArrowArray nodes[NODES]
    ArrowArray* children[NODES]
    const void* buffers[NODES][BUFFERS]
    int64_t view_sizes[2]
    int node_count
    int child_count
    bint failed                            # an allocation did


cdef void drop_source(PyObject* source) noexcept with gil:
    Py_DECREF(<object> source)


cdef void release_child(ArrowArray* node) noexcept nogil:
    node.release = NULL


cdef void release_root(ArrowArray* root) noexcept nogil:
    cdef Exported* exported = <Exported*> root.private_data
    clear_columns(&exported.columns)
    if exported.source != NULL and Py_IsInitialized():
        drop_source(exported.source)
    PyMem_RawFree(exported)
    root.release = NULL


cdef ArrowArray* add_node(
    Exported* exported, int64_t length, int64_t null_count, int buffer_count
) noexcept:
    cdef ArrowArray* node = &exported.nodes[exported.node_count]
    node.buffers = exported.buffers[exported.node_count]
    exported.node_count += 1
    node.length = length
    node.null_count = null_count
    node.n_buffers = buffer_count
    node.release = release_child
    return node


cdef void add_child(Exported* exported, ArrowArray* parent, ArrowArray* child) noexcept:
    """Children of one parent are added one after the other, with no other parent's between."""
    if parent.n_children == 0:
        parent.children = &exported.children[exported.child_count]
    exported.children[exported.child_count] = child
    exported.child_count += 1
    parent.n_children += 1


cdef const void* zeros_of(Exported* exported, replog_block* block, int64_t length) noexcept:
    cdef const void* content = zeros(block, length)
    if content == NULL:
        exported.failed = True
    return content


cdef const void* validity(Exported* exported, BytesColumn* column, int64_t rows) noexcept:
    if column.nulls == SOME_NULLS and column.null_count:
        return column.validity.at
    if column.nulls == ALL_NULL and rows:
        return zeros_of(exported, &column.validity, rows // 8 + 8)
    return NULL


cdef int64_t nulls(const BytesColumn* column, int64_t rows) noexcept:
    return rows if column.nulls == ALL_NULL else column.null_count


cdef ArrowArray* bytes_node(Exported* exported, BytesColumn* column, int64_t rows) noexcept:
    cdef ArrowArray* node = add_node(exported, rows, nulls(column, rows), 3)
    node.buffers[0] = validity(exported, column, rows)
    if column.nulls == ALL_NULL:
        node.buffers[1] = zeros_of(exported, &column.ends, 4 * (rows + 1))
        node.buffers[2] = zeros_of(exported, &column.bytes, 1)
    else:
        node.buffers[1] = column.ends.at
        node.buffers[2] = column.bytes.at
    return node


cdef ArrowArray* views_node(
    Exported* exported, const uint8_t* source_at, int64_t source_length
) noexcept:
    cdef Columns* columns = &exported.columns
    cdef BytesColumn* values = &columns.values
    cdef ArrowArray* node = add_node(exported, columns.rows, nulls(values, columns.rows), 5)
    node.buffers[0] = validity(exported, values, columns.rows)
    node.buffers[1] = columns.value_views.at
    node.buffers[2] = source_at
    node.buffers[3] = values.bytes.at
    exported.view_sizes[0] = source_length
    exported.view_sizes[1] = values.used
    node.buffers[4] = exported.view_sizes
    if values.used == 0:
        # One data buffer fewer: its size stands where the sizes are told.
        node.buffers[3] = exported.view_sizes
        node.n_buffers = 4
    return node


cdef ArrowArray* plain_node(Exported* exported, const void* content) noexcept:
    cdef ArrowArray* node = add_node(exported, exported.columns.rows, 0, 2)
    node.buffers[1] = content
    return node


cdef ArrowArray* headers_node(Exported* exported) noexcept:
    cdef Columns* columns = &exported.columns
    cdef int64_t header_rows = columns.header_rows
    cdef ArrowArray* node = add_node(exported, columns.rows, 0, 2)
    cdef ArrowArray* entries = add_node(exported, header_rows, 0, 1)
    cdef ArrowArray* keys = bytes_node(exported, &columns.header_keys, header_rows)
    cdef ArrowArray* values = bytes_node(exported, &columns.header_values, header_rows)
    if columns.headers_seen:
        node.buffers[1] = columns.list_ends.at
    else:
        node.buffers[1] = zeros_of(exported, &columns.list_ends, 4 * (columns.rows + 1))
    add_child(exported, entries, keys)
    add_child(exported, entries, values)
    add_child(exported, node, entries)
    return node


cdef ArrowArray* column_node(
    Exported* exported, int column, const uint8_t* source_at, int64_t source_length
) noexcept:
    cdef Columns* columns = &exported.columns
    if column == KEY:
        return bytes_node(exported, &columns.keys, columns.rows)
    if column == VALUE:
        if columns.views:
            return views_node(exported, source_at, source_length)
        return bytes_node(exported, &columns.values, columns.rows)
    if column == OFFSET:
        return plain_node(exported, columns.offsets.at)
    if column == TIMESTAMP:
        return plain_node(exported, columns.timestamps.at)
    if column == LEADER_EPOCH:
        return plain_node(exported, columns.epochs.at)
    if column == TIMESTAMP_TYPE:
        if columns.types_seen:
            return plain_node(exported, columns.types.at)
        return plain_node(exported, zeros_of(exported, &columns.types, columns.rows))
    return headers_node(exported)


cdef object export_columns(
    Columns* columns, object schema, const int* order, int order_length,
    object source, const uint8_t* source_at, int64_t source_length
):
    cdef Exported* exported = <Exported*> PyMem_RawCalloc(1, sizeof(Exported))
    cdef ArrowArray root
    cdef ArrowArray* nodes[COLUMN_COUNT]
    cdef int place
    if exported == NULL:
        raise MemoryError
    exported.columns = columns[0]
    memset(columns, 0, sizeof(Columns))
    memset(&root, 0, sizeof(ArrowArray))
    root.length = exported.columns.rows
    root.n_buffers = 1
    root.private_data = exported
    root.release = release_root
    root.buffers = exported.buffers[NODES - 1]
    if source is not None:
        Py_INCREF(source)
        exported.source = <PyObject*> source
    for place in range(order_length):
        nodes[place] = column_node(exported, order[place], source_at, source_length)
    for place in range(order_length):
        add_child(exported, &root, nodes[place])
    try:
        if exported.failed:
            raise MemoryError
        return _import_batch(<uintptr_t> &root, schema)
    finally:
        if root.release != NULL:
            root.release(&root)
