# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Plain batches that follow on each other, decoded from a file that is read in small pieces.

The pieces may be overwritten between calls: keys, values and headers are copied into the columns.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from replog._native.arrow_batch cimport export_columns
from replog._native.batch_format cimport *
from replog._native.record_batch cimport (
    BATCH_OK, BatchHeader, crc_matches, load_int32, load_int64, parse_header,
)
from replog._native.record_columns cimport (
    COLUMNS_NO_MEMORY, Columns, append_records, clear_columns, reserve_rows, reserve_value_bytes,
)
from replog._native.record_decoder cimport (
    Selection, names_of, select, with_readable_header_keys,
)

cdef int64_t INT64_MAX = 0x7FFFFFFFFFFFFFFF


cdef class StretchDecoder:
    """Decodes batches that need no second look, piece by piece, into one Arrow batch at a time.

    They are whole and right by their checksum, not compressed, no control batches, all of one
    leader epoch, and each begins where the one before it ended. Anything else ends the stretch and
    is left to those who know what to say about it. `proven` tells that a batch before the first one
    gave its offset; otherwise the batch behind it must bear it out.
    """

    cdef Columns columns
    cdef Selection selection
    cdef readonly int64_t next_offset    # at which the next batch has to begin
    cdef readonly int64_t last_size_bytes    # of the last batch taken
    cdef int32_t leader_epoch
    cdef int64_t start_offset
    cdef int64_t end_offset
    cdef int64_t upper_offset            # no batch of the file may reach it
    cdef bint check_crc
    cdef bint proven
    cdef int64_t rows_before             # of the last batch taken, what the next may need
    cdef int64_t value_bytes_before

    def __init__(
        self, int64_t next_offset, int32_t leader_epoch, *, columns=None, int64_t start_offset=0,
        int64_t end_offset=INT64_MAX, int64_t upper_offset=INT64_MAX, bint check_crc=True,
        bint proven=True,
    ):
        self.selection = select(names_of(columns), False)
        self.next_offset = next_offset
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.upper_offset = upper_offset
        self.check_crc = check_crc
        self.proven = proven
        self.columns.wanted = self.selection.wanted

    def __dealloc__(self):
        clear_columns(&self.columns)

    @property
    def rows(self):
        """Records decoded since the last take()."""
        return self.columns.rows

    @property
    def size_bytes(self):
        """Bytes of keys and values decoded since the last take()."""
        return self.columns.keys.used + self.columns.values.used

    cdef bint fits(self, const BatchHeader* header) noexcept nogil:
        return (
            header.base_offset == self.next_offset
            and header.leader_epoch == self.leader_epoch
            and not header.attributes & (CODEC_MASK | CONTROL_BIT)
            and header.last_offset < self.upper_offset
        )

    cdef bint is_borne_out(
        self, const uint8_t* behind, int64_t length, int64_t offset
    ) noexcept nogil:
        """Whether what stands behind the first batch begins at `offset`."""
        return (
            length >= HEADER_BYTES
            and load_int64(behind + BASE_OFFSET_AT) == offset
            and load_int32(behind + LEADER_EPOCH_AT) == self.leader_epoch
        )

    cdef int64_t append(
        self, const uint8_t* bytes, int64_t length, int64_t rows_enough, int64_t bytes_enough
    ) noexcept nogil:
        """Bytes of the batches that were taken, or an outcome of append_records."""
        cdef Columns* columns = &self.columns
        cdef BatchHeader header
        cdef int64_t at = 0
        cdef int outcome
        while columns.rows < rows_enough and self.next_offset < self.end_offset:
            if columns.keys.used + columns.values.used >= bytes_enough:
                break
            if parse_header(bytes + at, length - at, 0, &header) != BATCH_OK:
                break
            if not self.fits(&header):
                break
            if self.check_crc and not crc_matches(bytes + at, &header):
                break
            if not self.proven:
                outcome = self.is_borne_out(
                    bytes + at + header.size_bytes, length - at - header.size_bytes,
                    header.last_offset + 1,
                )
                if not outcome:
                    break
                self.proven = True
            outcome = append_records(
                columns, bytes + at + HEADER_BYTES, header.size_bytes - HEADER_BYTES, &header,
                self.start_offset, self.end_offset, -1,
            )
            if outcome != BATCH_OK:
                return outcome
            at += header.size_bytes
            self.next_offset = header.last_offset + 1
            self.last_size_bytes = header.size_bytes
        return at

    def feed(self, const uint8_t[::1] piece, *, int64_t rows_enough, int64_t bytes_enough):
        """Decode batches from the front of `piece`; returns how many bytes they took.

        Ends before a batch that is not whole or not of the stretch, and once there are
        `rows_enough` records or `bytes_enough` bytes of keys and values. None: the records of a
        batch contradict its header, and all since the last take() is dropped.
        """
        cdef int64_t taken
        cdef int64_t length = piece.shape[0]
        if length < HEADER_BYTES:
            return 0
        with nogil:
            if self.columns.rows == 0 and self.rows_before:
                reserve_rows(&self.columns, self.rows_before)
                reserve_value_bytes(&self.columns, self.value_bytes_before)
            taken = self.append(&piece[0], length, rows_enough, bytes_enough)
        if taken == COLUMNS_NO_MEMORY:
            raise MemoryError
        if taken < 0:
            self.drop()
            return None
        return taken

    def take(self):
        """The records decoded so far, as `decode_arrow` gives them."""
        cdef bint broken = self.columns.header_keys_broken
        self.rows_before = self.columns.rows
        self.value_bytes_before = self.columns.values.used
        try:
            batch = export_columns(
                &self.columns, self.selection.schema, self.selection.order, self.selection.count,
                None, NULL, 0,
            )
        finally:
            self.drop()
        return with_readable_header_keys(batch) if broken else batch

    cdef void drop(self) noexcept:
        clear_columns(&self.columns)
        self.columns.wanted = self.selection.wanted
