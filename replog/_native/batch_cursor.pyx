# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""The batches of a buffer that a read wants, one after the other.

Each batch looked at is held to its checksum and to the batches before it: base offsets grow, leader
epochs do not fall, the magic is 2. Batches wholly outside the asked offsets are stepped over
unread. Transactions that were aborted are left out by the rule of Kafka's consumer (KIP-98): from
the first offset of the transaction up to the producer's next ABORT marker.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t, uint8_t

from replog._native.batch_format cimport *
from replog._native.record_batch cimport (
    BATCH_BAD_CRC, BATCH_BAD_EPOCH, BATCH_BAD_OFFSET, BATCH_OK, BATCH_PARTIAL, BatchHeader,
    crc_matches, describe, parse_header,
)
from replog._native.record_columns cimport COLUMNS_NO_MEMORY, COLUMNS_TOO_LARGE

from replog._native.compression import decompress
from replog.errors import CorruptBatchError, StorageError, UsageError

cdef int64_t INT64_MAX = 0x7FFFFFFFFFFFFFFF


cdef class BatchCursor:
    def __cinit__(
        self, source, int64_t start_offset, int64_t end_offset, bint check_crc,
        aborted, bint include_control, int64_t output_bytes_max, path, int64_t position,
    ):
        PyObject_GetBuffer(source, &self.view, PyBUF_SIMPLE)
        self.source = source
        self.path = path
        self.position = position
        self.bytes = <const uint8_t*> self.view.buf
        self.length = self.view.len
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.output_bytes_max = output_bytes_max
        self.previous_last = -1
        self.previous_epoch = -1
        self.check_crc = check_crc
        self.include_control = include_control
        if aborted:
            self.set_aborted(aborted)

    def __dealloc__(self):
        PyMem_Free(self.aborted)
        PyBuffer_Release(&self.view)

    cdef int set_aborted(self, aborted) except -1:
        cdef list ranges = sorted(tuple(entry) for entry in aborted)
        cdef int64_t number = 0
        self.aborted = <AbortedRange*> PyMem_Malloc(len(ranges) * sizeof(AbortedRange))
        if self.aborted == NULL:
            raise MemoryError
        for entry in ranges:
            self.aborted[number].producer_id = entry[0]
            self.aborted[number].first_offset = entry[1]
            self.aborted[number].last_offset = entry[2] if len(entry) > 2 else INT64_MAX
            number += 1
        self.aborted_count = number
        return 0

    cdef AbortedRange* transaction_of(self, int64_t producer_id, int64_t offset) noexcept nogil:
        """The producer's last aborted transaction that starts at or below `offset`, or NULL."""
        cdef int64_t low = 0
        cdef int64_t high = self.aborted_count
        cdef int64_t middle
        cdef AbortedRange* entry
        while low < high:
            middle = (low + high) // 2
            entry = self.aborted + middle
            if entry.producer_id < producer_id or (
                entry.producer_id == producer_id and entry.first_offset <= offset
            ):
                low = middle + 1
            else:
                high = middle
        if low == 0 or self.aborted[low - 1].producer_id != producer_id:
            return NULL
        return self.aborted + (low - 1)

    cdef bint passes_isolation(self) noexcept nogil:
        """Whether a reader of committed records sees the batch; ABORT markers end transactions."""
        cdef AbortedRange* entry
        if self.aborted_count == 0:
            return True
        entry = self.transaction_of(self.header.producer_id, self.header.last_offset)
        if entry == NULL:
            return True
        if self.header.attributes & CONTROL_BIT:
            if self.header.control_type == CONTROL_ABORT and entry.last_offset == INT64_MAX:
                entry.last_offset = self.header.last_offset
            return True
        if not self.header.attributes & TRANSACTIONAL_BIT:
            return True
        return entry.last_offset < self.header.base_offset

    cdef int advance(self) noexcept nogil:
        cdef BatchHeader* header = &self.header
        cdef int outcome
        cdef bint seen
        while self.at < self.length:
            self.place = self.at
            outcome = parse_header(
                self.bytes + self.at, self.length - self.at, self.position + self.at, header
            )
            if outcome == BATCH_PARTIAL:
                break
            if outcome != BATCH_OK:
                return outcome
            if header.base_offset <= self.previous_last:
                return BATCH_BAD_OFFSET
            if header.leader_epoch < self.previous_epoch:
                return BATCH_BAD_EPOCH
            if header.base_offset >= self.end_offset:
                break
            self.previous_last = header.last_offset
            self.previous_epoch = header.leader_epoch
            self.at += header.size_bytes
            if header.last_offset < self.start_offset:
                if self.aborted_count:
                    self.passes_isolation()
                continue
            if self.check_crc and not crc_matches(self.bytes + self.place, header):
                return BATCH_BAD_CRC
            seen = self.passes_isolation()
            if seen and (self.include_control or not header.attributes & CONTROL_BIT):
                return CURSOR_BATCH
        return CURSOR_END

    cdef object records(self, const uint8_t** payload, int64_t* length):
        cdef const uint8_t[::1] decompressed
        cdef int64_t first = self.place + HEADER_BYTES
        cdef int codec = self.header.attributes & CODEC_MASK
        if codec == CODEC_NONE:
            payload[0] = self.bytes + self.place + HEADER_BYTES
            length[0] = self.header.size_bytes - HEADER_BYTES
            return None
        try:
            output = decompress(
                codec, memoryview(self.source)[first:self.place + self.header.size_bytes],
                self.output_bytes_max,
            )
        except StorageError as error:
            raise type(error)(
                f"{error} This is the batch at {self.where()}.",
                path=self.path, position=self.header.position, offset=self.header.base_offset,
            ) from error
        decompressed = memoryview(output).cast("B")  # Arrow calls its bytes signed
        payload[0] = &decompressed[0] if decompressed.shape[0] else self.bytes
        length[0] = decompressed.shape[0]
        return output

    cdef str where(self):
        source = "the buffer" if self.path is None else str(self.path)
        return f"byte {self.position + self.place} of {source}"

    cdef int raise_damage(self, int outcome) except -1:
        if outcome == COLUMNS_NO_MEMORY:
            raise MemoryError
        if outcome == COLUMNS_TOO_LARGE:
            raise UsageError(
                f"expected each Arrow column to hold less than 2 GiB, found more up to "
                f"{self.where()}; read smaller slices"
            )
        offset = self.header.base_offset if self.at > self.place or self.place else None
        raise CorruptBatchError(
            f"expected a valid record batch at {self.where()}, found that {describe(outcome)}; "
            f"restore it from another replica or cut the log before it",
            path=self.path, position=self.position + self.place, offset=offset,
        )
