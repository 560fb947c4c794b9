# Grown columns as Arrow's.

from libc.stdint cimport int64_t, uint8_t

from replog._native.record_columns cimport Columns

# The columns as a pyarrow.RecordBatch of `schema`, field i being column order[i]; they are empty
# afterwards. `source` and its `source_length` bytes at `source_at` stand behind the views; None
# without.
cdef object export_columns(
    Columns* columns, object schema, const int* order, int order_length,
    object source, const uint8_t* source_at, int64_t source_length
)
