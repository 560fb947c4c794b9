# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Record batches out of columns: lists of bytes, Arrow or numpy arrays, no object per record.

Each column is described once as pointers (`Column`, `Rows`); then C code sizes the records, and
writes them into the batch's own memory in one go, without the GIL unless a column is a Python
sequence. What comes out is byte for byte what Kafka's own builder makes of the same records,
uncompressed.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from replog._native.batch_format cimport (
    ATTRIBUTES_AT, BASE_OFFSET_AT, BASE_SEQUENCE_AT, BASE_TIMESTAMP_AT, BATCH_LENGTH_AT, CODEC_MASK,
    CONTROL_BIT, CRC_AT, CURRENT_MAGIC, DELETE_HORIZON_BIT, HEADER_BYTES, LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT, LOG_APPEND_TIME_BIT, LOG_OVERHEAD, MAGIC_AT, MAX_TIMESTAMP_AT,
    PRODUCER_EPOCH_AT, PRODUCER_ID_AT, RECORD_COUNT_AT, TRANSACTIONAL_BIT,
)
from replog._native.crc32c cimport crc32c
from replog._native.record_batch cimport (
    BATCH_OK, BatchHeader, crc_matches, describe, parse_header, store_int16, store_int32,
    store_int64,
)
from replog._native.input_columns cimport Rows, replog_rows

from replog._native.compression import compress, decompress
from replog.errors import CorruptBatchError, RecordBatchTooLargeError, UsageError

cdef extern from "c/record_encoder.h" nogil:
    enum:
        REPLOG_BAD_LENGTH
        REPLOG_BAD_TIMESTAMP
        REPLOG_BAD_HEADER_KEY

cdef int64_t BATCH_BYTES_MAX = 0x7FFFFFFF


cdef object refusal(int status, replog_extent* extent):
    row = extent.bad_row
    if status == REPLOG_BAD_LENGTH:
        return RecordBatchTooLargeError(
            f"expected records of less than 2 GiB, found a larger one in row {row}", row=row
        )
    if status == REPLOG_BAD_TIMESTAMP:
        return UsageError(f"expected timestamps from -1 (none) on, found a lower one in row {row}")
    if status == REPLOG_BAD_HEADER_KEY:
        return UsageError(f"expected header keys that are not null, found a null one in row {row}")
    return UsageError(
        f"expected columns whose rows lie inside their buffers, found row {row} outside; the Arrow "
        f"array is damaged (validate(full=True) says where) or another thread changed it"
    )


cdef int size_records(Rows rows, int64_t start, int64_t bytes_max, replog_extent* extent) except -1:
    cdef int status
    cdef replog_rows* columns = &rows.c
    if rows.borrows:
        status = replog_size_records(columns, start, bytes_max, extent)
    else:
        with nogil:
            status = replog_size_records(columns, start, bytes_max, extent)
    if status != 0:
        raise refusal(status, extent)
    return 0


cdef int write_records(Rows rows, int64_t start, replog_extent* extent, uint8_t* out) except -1:
    cdef int status
    cdef replog_rows* columns = &rows.c
    if rows.borrows:
        status = replog_write_records(columns, start, extent.row_count, out, extent.bytes)
    else:
        with nogil:
            status = replog_write_records(columns, start, extent.row_count, out, extent.bytes)
    if status != 0:
        extent.bad_row = start
        raise refusal(status, extent)
    return 0


cdef void write_header(
    uint8_t* at, int64_t size, const BatchFields* fields, int64_t base_timestamp,
    int64_t max_timestamp, int32_t record_count, int32_t last_offset_delta
) noexcept nogil:
    # The header of a batch of `size` bytes whose records stand behind it; the CRC comes last.
    store_int64(at + BASE_OFFSET_AT, fields.base_offset)
    store_int32(at + BATCH_LENGTH_AT, <int32_t>(size - LOG_OVERHEAD))
    store_int32(at + LEADER_EPOCH_AT, fields.leader_epoch)
    at[MAGIC_AT] = CURRENT_MAGIC
    store_int16(at + ATTRIBUTES_AT, fields.attributes)
    store_int32(at + LAST_OFFSET_DELTA_AT, last_offset_delta)
    store_int64(at + BASE_TIMESTAMP_AT, base_timestamp)
    store_int64(at + MAX_TIMESTAMP_AT, max_timestamp)
    store_int64(at + PRODUCER_ID_AT, fields.producer_id)
    store_int16(at + PRODUCER_EPOCH_AT, fields.producer_epoch)
    store_int32(at + BASE_SEQUENCE_AT, fields.base_sequence)
    store_int32(at + RECORD_COUNT_AT, record_count)
    store_int32(at + CRC_AT, <int32_t>crc32c(0, at + ATTRIBUTES_AT, size - ATTRIBUTES_AT))


cdef bytes batch_around(object payload):
    # Room for a header, then the payload.
    cdef Py_buffer view
    cdef bytes batch
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        batch = PyBytes_FromStringAndSize(NULL, HEADER_BYTES + view.len)
        memcpy(PyBytes_AS_STRING(batch) + HEADER_BYTES, view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return batch


cdef bytes encode_batch(
    Rows rows, int64_t start, int64_t bytes_max, object level, const BatchFields* fields,
    replog_extent* extent
):
    # One batch of at most bytes_max bytes from rows [start, start + extent.row_count).
    cdef int codec = fields.attributes & CODEC_MASK
    cdef int64_t records_bytes_max = bytes_max - HEADER_BYTES
    cdef int64_t base_timestamp, max_timestamp
    cdef bytes batch
    cdef uint8_t* at
    while True:
        size_records(rows, start, records_bytes_max, extent)
        if codec == 0 or extent.bytes > BATCH_BYTES_MAX - HEADER_BYTES:
            if extent.bytes + HEADER_BYTES > bytes_max:
                raise batch_too_large(start, extent.bytes + HEADER_BYTES, bytes_max)
            batch = PyBytes_FromStringAndSize(NULL, HEADER_BYTES + extent.bytes)
            write_records(rows, start, extent, <uint8_t*>PyBytes_AS_STRING(batch) + HEADER_BYTES)
            break
        batch = PyBytes_FromStringAndSize(NULL, extent.bytes)
        write_records(rows, start, extent, <uint8_t*>PyBytes_AS_STRING(batch))
        batch = batch_around(compress(codec, batch, level))
        if len(batch) <= bytes_max:
            break
        # Records that grow by compression: fewer of them, until one alone is too large.
        if extent.row_count == 1:
            raise batch_too_large(start, len(batch), bytes_max)
        records_bytes_max = extent.bytes // 2
    at = <uint8_t*>PyBytes_AS_STRING(batch)
    base_timestamp = rows.c.timestamp if rows.c.timestamps is NULL else rows.c.timestamps[start]
    max_timestamp = extent.max_timestamp
    if fields.attributes & LOG_APPEND_TIME_BIT:
        max_timestamp = fields.append_time_ms
    cdef int64_t size = PyBytes_GET_SIZE(batch)
    cdef int32_t count = <int32_t>extent.row_count
    with nogil:
        write_header(at, size, fields, base_timestamp, max_timestamp, count, count - 1)
    return batch


cdef object batch_too_large(int64_t row, int64_t found, int64_t allowed):
    return RecordBatchTooLargeError(
        f"expected a record that fits into a batch of {allowed} bytes, found row {row} to need "
        f"{found}; raise max_message_bytes or split the record",
        row=row, size_bytes=found,
    )


cdef object encode_rows(Rows rows, BatchFields fields, object level, int64_t bytes_max):
    cdef replog_extent extent
    cdef int64_t start = 0
    cdef bytes batch
    cdef list batches = []
    while start < rows.c.count:
        batch = encode_batch(rows, start, bytes_max, level, &fields, &extent)
        start += extent.row_count
        if start == rows.c.count and not batches:
            return batch
        batches.append(batch)
        fields.base_offset += extent.row_count
        if fields.base_sequence >= 0:   # after 2147483647 comes 0
            fields.base_sequence = <int32_t>((fields.base_sequence + extent.row_count) & 0x7FFFFFFF)
    return b"".join(batches)


def encode(
    values,
    keys=None,
    timestamps=None,
    headers=None,
    *,
    int64_t now_ms,
    int codec=0,
    level=None,
    int timestamp_type=0,
    int64_t producer_id=-1,
    int16_t producer_epoch=-1,
    int32_t base_sequence=-1,
    bint transactional=False,
    int64_t base_offset=0,
    int32_t leader_epoch=-1,
    batch_bytes_max=None,
):
    """One record batch, or several in a row where batch_bytes_max asks for it, as bytes.

    values, keys: list or tuple of bytes or None; an Arrow array (chunked or not) of binary,
    large_binary, string, binary_view or fixed_size_binary; a numpy array of S strings or of uint8
    in two dimensions (a row each). What is masked is null. keys None: no record has a key.
    timestamps: None for now_ms; one int; ints, an int64 or datetime64 numpy array, an Arrow array
    of int64 or timestamp, all of whole milliseconds. Milliseconds since 1970, -1 for none.
    headers: per record a sequence of (str, bytes or None), a dict or None; or an Arrow
    list<struct<key, value>> or map.
    codec, level: as compression.compress(). timestamp_type 1 (LogAppendTime) puts now_ms into
    max_timestamp, as a leader does. base_offset and base_sequence run on from batch to batch.
    batch_bytes_max: no batch is larger, header included; None is 2 GiB. No values make b"".

    UsageError for a wrong type or length, naming it; RecordBatchTooLargeError for a record that
    does not fit into a batch alone; UnknownCodecError.
    """
    cdef Rows rows = Rows.__new__(Rows)
    cdef BatchFields fields
    cdef int64_t bytes_max = BATCH_BYTES_MAX
    if batch_bytes_max is not None:
        bytes_max = min(batch_bytes_max, BATCH_BYTES_MAX)
    rows.take_values_and_keys(values, keys)
    rows.take_timestamps(timestamps, now_ms)
    rows.take_headers(headers)
    if codec & ~CODEC_MASK:
        codec = CODEC_MASK   # compress() refuses it by name
    fields.base_offset = base_offset
    fields.leader_epoch = leader_epoch
    fields.producer_id = producer_id
    fields.producer_epoch = producer_epoch
    fields.base_sequence = base_sequence
    fields.append_time_ms = now_ms
    fields.attributes = (
        codec
        | (LOG_APPEND_TIME_BIT if timestamp_type else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
    )
    return encode_rows(rows, fields, level, bytes_max)


def encode_control(
    control_type: int,
    *,
    int64_t producer_id,
    int16_t producer_epoch,
    int32_t coordinator_epoch,
    int64_t timestamp,
    int64_t base_offset=0,
    int32_t leader_epoch=-1,
) -> bytes:
    """An end-of-transaction marker: the control batch of one record, ABORT (0) or COMMIT (1)."""
    if control_type not in (0, 1):
        raise UsageError(f"expected control type 0 (ABORT) or 1 (COMMIT), found {control_type!r}")
    cdef Rows rows = Rows.__new__(Rows)
    cdef BatchFields fields
    key = b"\x00\x00" + control_type.to_bytes(2, "big")
    value = b"\x00\x00" + (<object>coordinator_epoch).to_bytes(4, "big", signed=True)
    rows.take_values_and_keys([value], [key])
    rows.take_timestamps(None, timestamp)
    memset(&fields, 0, sizeof(fields))
    fields.base_offset = base_offset
    fields.leader_epoch = leader_epoch
    fields.producer_id = producer_id
    fields.producer_epoch = producer_epoch
    fields.base_sequence = -1
    fields.attributes = TRANSACTIONAL_BIT | CONTROL_BIT
    return encode_rows(rows, fields, None, BATCH_BYTES_MAX)


cdef object damaged_batch(str found, const BatchHeader* header):
    return CorruptBatchError(
        f"expected one whole record batch, found {found}", offset=header.base_offset
    )


cdef object renumbered(object payload, BatchHeader* header):
    # The records with offset deltas 0, 1, 2, ..., as a leader's rebuild numbers them.
    cdef Py_buffer view
    cdef replog_renumbering renumbering
    cdef bytes records
    cdef int status
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        status = replog_renumber_records(
            <const uint8_t*>view.buf, view.len, header.record_count, NULL, 0, &renumbering
        )
        if status == 0 and not renumbering.changed and renumbering.base_shift == 0:
            return payload
        if status == 0:
            records = PyBytes_FromStringAndSize(NULL, renumbering.bytes)
            status = replog_renumber_records(
                <const uint8_t*>view.buf, view.len, header.record_count,
                <uint8_t*>PyBytes_AS_STRING(records), PyBytes_GET_SIZE(records), &renumbering
            )
        if status != 0:
            raise damaged_batch(
                f"{view.len} bytes that are not {header.record_count} records", header
            )
    finally:
        PyBuffer_Release(&view)
    header.base_timestamp += renumbering.base_shift
    return records


def recode(batch, int codec, level=None, output_bytes_max: int = 1 << 26):
    """The same batch with its records compressed by `codec`, checksum and length rewritten.

    `batch` is one whole batch. As a leader that changes the codec does, records of a fresh batch
    are numbered 0, 1, 2, ... and timed from the first one; a batch with holes (after compaction)
    keeps its numbers. Control batches and batches without records come back as they are.

    CorruptBatchError if the batch is not whole; DecompressionError, also beyond output_bytes_max
    bytes of records; UnknownCodecError.
    """
    cdef BatchHeader header
    cdef BatchFields fields
    cdef Py_buffer view
    cdef bytes content
    cdef int outcome
    memset(&header, 0, sizeof(header))
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        outcome = parse_header(<const uint8_t*>view.buf, view.len, 0, &header)
        if outcome != BATCH_OK:
            raise damaged_batch(describe(outcome), &header)
        if header.size_bytes != view.len:
            raise damaged_batch(f"{view.len} bytes around one of {header.size_bytes}", &header)
        if not crc_matches(<const uint8_t*>view.buf, &header):
            raise damaged_batch("one whose checksum does not match", &header)
    finally:
        PyBuffer_Release(&view)
    if header.attributes & CONTROL_BIT or header.record_count == 0:
        return batch
    payload = decompress(
        header.attributes & CODEC_MASK, memoryview(batch).cast("B")[HEADER_BYTES:], output_bytes_max
    )
    if header.last_offset - header.base_offset + 1 == header.record_count and not (
        header.attributes & DELETE_HORIZON_BIT
    ):
        payload = renumbered(payload, &header)
    content = batch_around(compress(codec, payload, level))
    if PyBytes_GET_SIZE(content) > BATCH_BYTES_MAX:
        raise batch_too_large(0, PyBytes_GET_SIZE(content), BATCH_BYTES_MAX)
    fields.base_offset = header.base_offset
    fields.leader_epoch = header.leader_epoch
    fields.producer_id = header.producer_id
    fields.producer_epoch = header.producer_epoch
    fields.base_sequence = header.base_sequence
    fields.attributes = (header.attributes & ~CODEC_MASK) | codec
    write_header(
        <uint8_t*>PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content), &fields,
        header.base_timestamp, header.max_timestamp, header.record_count,
        <int32_t>(header.last_offset - header.base_offset)
    )
    return content
