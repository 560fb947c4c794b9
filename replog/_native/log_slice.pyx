# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""What a read of a log answers: a range of one segment's bytes, pinned in its mapping."""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int64_t, uint8_t

from replog._native.arguments cimport flag_of, offset_of
from replog._native.mapped_file cimport FileView
from replog._native.record_batch cimport BATCH_OK, BatchHeader, parse_header

from replog._native import record_decoder

cdef int64_t OFFSET_MAX = 0x7FFFFFFFFFFFFFFF


cdef class LogSlice:
    """Whole batches from one segment, as a read-only buffer over the mapping; empty if there are
    none.

    The first batch holds start_offset and may begin below it; the last may be cut by max_bytes.
    """

    def __init__(self, int64_t start_offset, int64_t segment_base_offset, int64_t position,
                 int64_t size_bytes, bint first_batch_incomplete, FileView bytes_view, str path):
        self.start_offset = start_offset
        self.segment_base_offset = segment_base_offset
        self.position = position
        self.size_bytes = size_bytes
        self.first_batch_incomplete = first_batch_incomplete
        self.bytes_view = bytes_view
        self.path = path

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        cdef const uint8_t* address = b""
        if self.bytes_view is not None:
            address = self.bytes_view.address
        PyBuffer_FillInfo(buffer, self, <void*> address, self.size_bytes, True, flags)

    def __len__(self):
        return self.size_bytes

    @property
    def end_offset(self):
        """Exclusive end of the whole batches; start_offset if there is none."""
        cdef BatchHeader header
        cdef int64_t at = 0, end = self.start_offset
        while at < self.size_bytes and parse_header(
            self.bytes_view.address + at, self.size_bytes - at, at, &header
        ) == BATCH_OK:
            end = header.last_offset + 1
            at += header.size_bytes
        return end

    def epoch_before(self, end_offset):
        """The leader epoch of the last whole batch that begins below end_offset; -1 for none."""
        cdef BatchHeader header
        cdef int64_t at = 0, end = offset_of(end_offset, "end_offset", self.path)
        cdef int epoch = -1
        while at < self.size_bytes and parse_header(
            self.bytes_view.address + at, self.size_bytes - at, at, &header
        ) == BATCH_OK and header.base_offset < end:
            epoch = header.leader_epoch
            at += header.size_bytes
        return epoch

    def to_arrow(self, *, end_offset=OFFSET_MAX, columns=None, zero_copy=False, **options):
        """The records of [start_offset, end_offset) as an Arrow RecordBatch; see record_decoder.

        Raises UsageError for another end, unknown columns or no bool, CorruptBatchError,
        DecompressionError.
        """
        return record_decoder.decode_arrow(
            self, start_offset=self.start_offset,
            end_offset=offset_of(end_offset, "end_offset", self.path), columns=columns,
            zero_copy=flag_of(zero_copy, "zero_copy", self.path), path=self.path,
            position=self.position, **options,
        )

    def records(self, *, end_offset=OFFSET_MAX, **options):
        """Iterate the records of [start_offset, end_offset), decoding one batch at a time.

        Raises UsageError for another end; CorruptBatchError, DecompressionError as it gets there.
        """
        return record_decoder.iter_records(
            self, start_offset=self.start_offset,
            end_offset=offset_of(end_offset, "end_offset", self.path), path=self.path,
            position=self.position, **options,
        )
