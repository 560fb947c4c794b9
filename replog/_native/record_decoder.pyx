# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Records out of batches: as Arrow columns, as lazy Python tuples, or just counted.

Input is any buffer of whole batches as a log file or a fetch response holds them; a partial batch
at the end is ignored, as both may have one. Every batch that is looked at is held to its checksum,
to its own counts and to the batches before it, and nothing of a damaged one is ever handed out.

The buffer must not change while a call runs; views of `zero_copy` and iterators keep it alive.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memset

from replog._native.arrow_batch cimport export_columns
from replog._native.batch_cursor cimport CURSOR_BATCH, CURSOR_END, BatchCursor
from replog._native.batch_format cimport *
from replog._native.record_batch cimport (
    BATCH_BAD_COUNT, BATCH_BAD_RECORD, BATCH_OK, BatchHeader, load_int16, load_int32,
)
from replog._native.record_columns cimport (
    COLUMNS_NO_MEMORY, Columns, append_records, clear_columns, reserve_rows, reserve_value_bytes,
)
from replog._native.record_walk cimport HeaderView, RecordView, next_header, next_record

import pyarrow as pa

from replog.errors import InvariantViolation, UsageError, shown

cdef enum:
    CURSOR_COMPRESSED = 3      # beside the cursor's own: records must be decompressed first
    RECORD_BYTES_MIN = 7

cdef int64_t INT64_MAX = 0x7FFFFFFFFFFFFFFF
cdef int64_t OUTPUT_BYTES_MAX = 64 * 1024 * 1024

cdef tuple COLUMN_NAMES = (
    "key", "value", "offset", "timestamp", "timestamp_type", "leader_epoch", "headers",
)
cdef tuple COLUMN_TYPES = (
    pa.binary(),
    pa.binary(),
    pa.int64(),
    pa.timestamp("ms", tz="UTC"),
    pa.int8(),
    pa.int32(),
    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
)


# ---- Arrow columns -------------------------------------------------------------------------------

cdef class Selection:
    """Which columns, in which order, as which types."""


cdef dict _selections = {}


cdef tuple names_of(columns):
    # None for all, or different names of columns; UsageError for anything else.
    names = None
    if columns is None:
        return None
    if not isinstance(columns, (str, bytes)):
        try:
            names = tuple(columns)
        except Exception:  # no iterable, or one that fails
            names = None
    if names is None or not all(isinstance(name, str) and name in COLUMN_NAMES for name in names):
        names = None
    elif len(set(names)) != len(names):
        names = None
    if names is None:
        raise UsageError(
            f"expected columns to be a sequence of different names out of "
            f"{', '.join(COLUMN_NAMES)}, found {shown(columns)}",
            argument="columns",
        )
    return names


cdef Selection select(columns, bint zero_copy):
    cdef Selection selection = _selections.get((columns, zero_copy))
    if selection is not None:
        return selection
    names = COLUMN_NAMES if columns is None else columns
    selection = Selection()
    fields = []
    for name in names:
        column = COLUMN_NAMES.index(name)
        selection.order[selection.count] = column
        selection.count += 1
        selection.wanted |= 1 << <int> column
        views = zero_copy and name == "value"
        fields.append((name, pa.binary_view() if views else COLUMN_TYPES[column]))
    selection.schema = pa.schema(fields)
    _selections[columns, zero_copy] = selection
    return selection


def schema(columns=None, *, bint zero_copy=False):
    """The pyarrow.Schema of what `decode_arrow` returns for the same arguments."""
    return select(names_of(columns), zero_copy).schema


cdef int reserve_plain(BatchCursor cursor, Columns* columns) noexcept nogil:
    """Room for all uncompressed batches ahead, by their headers alone: a hint, believed only as far
    as the bytes of each batch can bear it out."""
    cdef int64_t at = 0
    cdef int64_t rows = 0
    cdef int64_t content = 0
    cdef int64_t size, count
    cdef const uint8_t* batch
    while cursor.length - at >= HEADER_BYTES:
        batch = cursor.bytes + at
        size = LOG_OVERHEAD + <int64_t> load_int32(batch + BATCH_LENGTH_AT)
        if size < HEADER_BYTES or size > cursor.length - at:
            break
        at += size
        if load_int16(batch + ATTRIBUTES_AT) & CODEC_MASK:
            continue
        count = load_int32(batch + RECORD_COUNT_AT)
        size -= HEADER_BYTES
        if count < 0 or count > size // RECORD_BYTES_MIN:
            break
        rows += count
        content += size - RECORD_BYTES_MIN * count
    if reserve_rows(columns, rows):
        return COLUMNS_NO_MEMORY
    return BATCH_OK if columns.views else reserve_value_bytes(columns, content)


cdef int append_plain(BatchCursor cursor, Columns* columns) noexcept nogil:
    """Append batches up to the end, damage, or a compressed one."""
    cdef BatchHeader* header = &cursor.header
    cdef int64_t first
    cdef int outcome
    while True:
        outcome = cursor.advance()
        if outcome != CURSOR_BATCH:
            return outcome
        if header.attributes & CODEC_MASK:
            return CURSOR_COMPRESSED
        first = cursor.place + HEADER_BYTES
        outcome = append_records(
            columns, cursor.bytes + first, header.size_bytes - HEADER_BYTES, header,
            cursor.start_offset, cursor.end_offset, first,
        )
        if outcome != BATCH_OK:
            return outcome


cdef object fill(BatchCursor cursor, Columns* columns):
    cdef const uint8_t* payload = NULL
    cdef int64_t length = 0
    cdef int outcome
    output = None
    with nogil:
        outcome = reserve_plain(cursor, columns)
    while outcome == BATCH_OK:
        # The GIL comes back once a compressed batch: readers side by side pay for each time.
        with nogil:
            if payload != NULL:
                outcome = append_records(
                    columns, payload, length, &cursor.header, cursor.start_offset,
                    cursor.end_offset, -1,
                )
            if outcome == BATCH_OK:
                outcome = append_plain(cursor, columns)
        if outcome == CURSOR_END:
            return None
        if outcome == CURSOR_COMPRESSED:
            output = None  # its memory is the next one's
            output = cursor.records(&payload, &length)
            outcome = BATCH_OK
    cursor.raise_damage(outcome)


cdef object with_readable_header_keys(batch):
    """Header keys that are not UTF-8: U+FFFD for what cannot be read, as in Kafka's clients."""
    place = batch.schema.get_field_index("headers")
    lists = batch.column(place)
    entries = lists.values
    raw = entries.field(0).view(pa.binary())
    keys = pa.array([key.as_py().decode("utf-8", "replace") for key in raw], pa.string())
    readable = pa.StructArray.from_arrays([keys, entries.field(1)], names=["key", "value"])
    repaired = pa.ListArray.from_arrays(lists.offsets, readable)
    return batch.set_column(place, batch.schema.field(place), repaired)


def decode_arrow(
    buffer, *, int64_t start_offset=0, int64_t end_offset=INT64_MAX, columns=None,
    bint check_crc=True, bint zero_copy=False, aborted=(), bint include_control=False,
    int64_t output_bytes_max=OUTPUT_BYTES_MAX, path=None, int64_t position=0,
):
    """Decode the records of [start_offset, end_offset) in `buffer` into one pyarrow.RecordBatch.

    Columns: key, value (binary), offset (int64), timestamp (timestamp[ms, UTC]), timestamp_type
    (int8), leader_epoch (int32), headers (list<struct<key: string, value: binary>>), or those that
    `columns` names, in its order. `zero_copy` makes value a binary_view whose bytes stay in
    `buffer`, which then lives as long as the batch; values of compressed batches are copied all
    the same. Control records are left out unless `include_control`. `aborted` gives transactions
    to leave out, as (producer_id, first_offset[, last_offset]): from first_offset up to
    last_offset, or else to the producer's next ABORT marker. `path` and `position` (byte of the
    file at which the buffer starts) are for errors. The GIL is released while records are read.

    Raises CorruptBatchError (path, position, offset), UnknownCodecError, DecompressionError (also
    where a batch decompresses to more than `output_bytes_max` bytes), UsageError (unknown column; a
    column of 2 GiB or more).
    """
    cdef Selection selection
    cdef BatchCursor cursor
    cdef Columns grown
    cdef bint broken
    selection = select(names_of(columns), zero_copy)
    cursor = BatchCursor(
        buffer, start_offset, end_offset, check_crc, aborted, include_control, output_bytes_max,
        path, position,
    )
    memset(&grown, 0, sizeof(Columns))
    grown.wanted = selection.wanted
    grown.views = zero_copy
    try:
        fill(cursor, &grown)
        broken = grown.header_keys_broken
        batch = export_columns(
            &grown, selection.schema, selection.order, selection.count,
            memoryview(buffer) if zero_copy else None, cursor.bytes, cursor.length,
        )
    finally:
        clear_columns(&grown)
    return with_readable_header_keys(batch) if broken else batch


# ---- Python records ------------------------------------------------------------------------------

cdef inline object bytes_or_none(const uint8_t* at, int64_t length):
    return PyBytes_FromStringAndSize(<const char*> at, length) if length >= 0 else None


cdef tuple header_pairs(const RecordView* record):
    cdef const uint8_t* at = record.headers
    cdef HeaderView header
    cdef list pairs = []
    cdef int64_t number
    for number in range(record.header_count):
        at = next_header(at, record.end, &header)
        if at == NULL:
            raise InvariantViolation(
                f"expected header {number} of a record to be as it was when the record was walked, "
                f"found other bytes: somebody wrote to the buffer while it was read"
            )
        pairs.append((
            bytes_or_none(header.key, header.key_length).decode("utf-8", "replace"),
            bytes_or_none(header.value, header.value_length),
        ))
    return tuple(pairs)


cdef class RecordIterator:
    """Records one by one; a batch is checked and decompressed when its first record is due."""

    cdef BatchCursor cursor
    cdef object record_type
    cdef object output                   # keeps a decompressed batch alive
    cdef const uint8_t* next_at
    cdef const uint8_t* end
    cdef int64_t left                    # records of the batch still to come
    cdef int64_t previous_delta

    def __init__(self):
        raise TypeError("expected a call of iter_records, found RecordIterator()")

    def __iter__(self):
        return self

    cdef bint begin_batch(self) except -1:
        cdef int outcome
        with nogil:
            outcome = self.cursor.advance()
        if outcome == CURSOR_END:
            return False
        if outcome != CURSOR_BATCH:
            self.cursor.raise_damage(outcome)
        self.open_batch()
        return True

    cdef int open_batch(self) except -1:
        """Stand before the first record of the batch that the cursor found."""
        cdef int64_t length = 0
        self.output = self.cursor.records(&self.next_at, &length)
        self.end = self.next_at + length
        self.left = self.cursor.header.record_count
        self.previous_delta = -1
        if self.left == 0 and length:
            self.cursor.raise_damage(BATCH_BAD_COUNT)
        return 0

    cdef int read_record(self, RecordView* record) except -1:
        cdef BatchHeader* header = &self.cursor.header
        self.next_at = next_record(self.next_at, self.end, record)
        if self.next_at == NULL:
            self.cursor.raise_damage(BATCH_BAD_RECORD)
        self.left -= 1
        if (
            record.offset_delta <= self.previous_delta
            or record.offset_delta > header.last_offset - header.base_offset
            or (self.left == 0 and self.next_at != self.end)
        ):
            self.cursor.raise_damage(BATCH_BAD_COUNT)
        self.previous_delta = record.offset_delta
        return 0

    def __next__(self):
        cdef RecordView record
        cdef BatchHeader* header = &self.cursor.header
        cdef int64_t offset, timestamp
        cdef bint append_time
        while True:
            while self.left <= 0:
                if not self.begin_batch():
                    raise StopIteration
            self.read_record(&record)
            offset = header.base_offset + record.offset_delta
            if self.cursor.start_offset <= offset < self.cursor.end_offset:
                break
        append_time = (header.attributes & LOG_APPEND_TIME_BIT) != 0
        timestamp = <int64_t> (<uint64_t> header.base_timestamp + <uint64_t> record.timestamp_delta)
        if append_time:
            timestamp = header.max_timestamp
        fields = (
            offset, timestamp, 1 if append_time else 0, header.leader_epoch,
            bytes_or_none(record.key, record.key_length),
            bytes_or_none(record.value, record.value_length),
            header_pairs(&record) if record.header_count else (),
        )
        return fields if self.record_type is tuple else tuple.__new__(self.record_type, fields)


def iter_records(
    buffer, *, int64_t start_offset=0, int64_t end_offset=INT64_MAX, bint check_crc=True,
    aborted=(), bint include_control=False, int64_t output_bytes_max=OUTPUT_BYTES_MAX, path=None,
    int64_t position=0, record_type=tuple,
):
    """Iterate over the records of [start_offset, end_offset) in `buffer`, lazily.

    Each is a tuple (offset, timestamp, timestamp_type, leader_epoch, key, value, headers), made as
    `record_type`, a NamedTuple class of these seven fields, if given. Options and errors are those
    of `decode_arrow`; errors come when the damaged batch is reached.
    """
    cdef RecordIterator records = RecordIterator.__new__(RecordIterator)
    records.cursor = BatchCursor(
        buffer, start_offset, end_offset, check_crc, aborted, include_control, output_bytes_max,
        path, position,
    )
    records.record_type = record_type
    return records


def count_records(
    buffer, *, int64_t start_offset=0, int64_t end_offset=INT64_MAX, bint check_crc=True,
    aborted=(), bint include_control=False, int64_t output_bytes_max=OUTPUT_BYTES_MAX, path=None,
    int64_t position=0,
):
    """Count the records that `decode_arrow` would return, mostly from the batch headers.

    A batch that lies wholly inside [start_offset, end_offset) counts by its header, which its
    checksum guards; one that an end falls into is walked. Options and errors are those of
    `decode_arrow`.
    """
    cdef RecordIterator records = iter_records(
        buffer, start_offset=start_offset, end_offset=end_offset, check_crc=check_crc,
        aborted=aborted, include_control=include_control, output_bytes_max=output_bytes_max,
        path=path, position=position,
    )
    cdef BatchCursor cursor = records.cursor
    cdef BatchHeader* header = &cursor.header
    cdef RecordView record
    cdef int64_t total = 0
    cdef int outcome
    while True:
        with nogil:
            outcome = cursor.advance()
            while (
                outcome == CURSOR_BATCH
                and header.base_offset >= start_offset and header.last_offset < end_offset
            ):
                total += header.record_count
                outcome = cursor.advance()
        if outcome == CURSOR_END:
            return total
        if outcome != CURSOR_BATCH:
            cursor.raise_damage(outcome)
        records.open_batch()
        while records.left > 0:
            records.read_record(&record)
            if start_offset <= header.base_offset + record.offset_delta < end_offset:
                total += 1
