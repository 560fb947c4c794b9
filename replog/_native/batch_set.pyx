# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""The batches of one append, from the caller's bytes to what is written.

A leader's append checks everything before it trusts anything (Kafka's LogValidator), then stamps
base offset, leader epoch and, where it must, timestamps into a copy of each header: the caller's
bytes are never changed. A follower's append keeps the bytes and checks that they continue the log.
The arrays are kept from append to append, so that a steady stream allocates nothing.
"""

from libc.limits cimport INT_MAX
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from replog._native.batch_format cimport *
from replog._native.crc32c cimport crc32c
from replog._native.mapped_file cimport iovec
from replog._native.record_batch cimport (
    BATCH_BAD_CODEC, BATCH_BAD_COUNT, BATCH_BAD_CRC, BATCH_BAD_RECORD, BATCH_OK, BATCH_PARTIAL,
    BatchHeader, crc_matches, describe, parse_header, store_int16, store_int32, store_int64,
    walk_records,
)

from replog.errors import (
    CorruptBatchError, InvalidRecordError, InvalidTimestampError, OffsetOutOfRangeError,
    OutOfOrderOffsetError, RecordBatchTooLargeError, UnknownCodecError, UsageError,
)

from replog._native import compression

cdef int64_t OFFSET_MAX = 0x7FFFFFFFFFFFFFFF

cdef enum:
    GIL_KEPT_BYTES = 131072    # less takes a few µs, which is what a hand-over of the GIL takes


cdef int check_whole(PendingBatch* pending, int64_t left) noexcept nogil:
    """Parse, checksum and, if the records are plain, walk the batch at pending.source."""
    cdef BatchHeader* header = &pending.header
    cdef int outcome = parse_header(pending.source, left, header.position, header)
    if outcome != BATCH_OK:
        return outcome
    if not crc_matches(pending.source, header):
        return BATCH_BAD_CRC
    if header.attributes & CODEC_MASK > CODEC_ZSTD:
        return BATCH_BAD_CODEC
    if header.attributes & CODEC_MASK == CODEC_NONE:
        return walk_records(
            pending.source + RECORDS_AT, header.size_bytes - RECORDS_AT, header.record_count,
            header.base_timestamp, <int32_t> (header.last_offset - header.base_offset),
            &pending.summary,
        )
    return BATCH_OK


cdef class BatchSet:
    def __cinit__(self):
        self.rewritten = []
        self.reserve(4)

    def __dealloc__(self):
        free(self.batches)
        free(self.parts)

    cdef int reserve(self, int64_t count) except -1:
        cdef void* grown
        if count <= self.capacity:
            return 0
        grown = realloc(self.batches, count * sizeof(PendingBatch))
        if grown == NULL:
            raise MemoryError
        self.batches = <PendingBatch*> grown
        grown = realloc(self.parts, 2 * count * sizeof(iovec))
        if grown == NULL:
            raise MemoryError
        self.parts = <iovec*> grown
        self.capacity = count
        return 0

    cdef void release(self) noexcept:
        self.count = 0
        self.part_count = 0
        if self.rewritten:
            self.rewritten = []

    cdef int load_from_client(
        self, const uint8_t* bytes, int64_t length, str path, int64_t decompressed_bytes_max
    ) except -1:
        cdef int64_t at = 0
        cdef int outcome = BATCH_OK
        cdef PendingBatch* pending
        self.release()
        if length == 0:
            raise UsageError(f"expected a record batch to append to {path}, found no bytes")
        while at < length:
            if self.count == self.capacity:
                self.reserve(self.capacity * 4)
            pending = self.batches + self.count
            pending.source = bytes + at
            pending.header.position = at
            if length - at < GIL_KEPT_BYTES:
                outcome = check_whole(pending, length - at)
            else:
                with nogil:
                    outcome = check_whole(pending, length - at)
            if outcome != BATCH_OK:
                self.refuse(outcome, pending, path, at)
            self.count += 1
            if pending.header.attributes & CODEC_MASK:
                self.walk_compressed(pending, path, decompressed_bytes_max)
            at += pending.header.size_bytes
        self.length_bytes = at
        return 0

    cdef int check_size(self, int64_t segment_bytes, str path) except -1:
        """Refuse what no segment can hold."""
        if self.length_bytes > segment_bytes:
            raise RecordBatchTooLargeError(
                f"expected an append of at most segment_bytes = {segment_bytes}, found "
                f"{self.length_bytes} bytes for {path}; append fewer batches at once",
                path=path,
            )
        return 0

    cdef int refuse_cut(self, int64_t length, str path) except -1:
        """Refuse bytes of a leader that hold no whole batch; no bytes at all are no mistake."""
        if length:
            raise UsageError(
                f"expected at least one whole record batch to append to {path}, found none in "
                f"{length} bytes; fetch again with a larger limit",
                path=path,
            )
        return 0

    cdef int refuse(self, int outcome, PendingBatch* pending, str path, int64_t at) except -1:
        """Raise what `outcome` means for an append; nothing has been written."""
        problem = describe(outcome)
        place = f"the batch at byte {at} of those given to append to {path}"
        if outcome == BATCH_BAD_CODEC:
            raise UnknownCodecError(
                f"expected a codec of 0 to 4 in {place}, found "
                f"{pending.header.attributes & CODEC_MASK}; nothing was appended",
                path=path, position=at,
            )
        if outcome == BATCH_BAD_COUNT or outcome == BATCH_BAD_RECORD:
            raise InvalidRecordError(
                f"expected the records of {place} to be as its header says, found: {problem}; "
                f"nothing was appended",
                path=path, position=at,
            )
        raise CorruptBatchError(
            f"expected a whole v2 record batch, but {place} is damaged: {problem}; nothing was "
            f"appended, send it again",
            path=path, position=at,
        )

    cdef int walk_compressed(
        self, PendingBatch* pending, str path, int64_t decompressed_bytes_max
    ) except -1:
        cdef BatchHeader* header = &pending.header
        cdef Py_buffer plain
        cdef int outcome
        cdef int codec = header.attributes & CODEC_MASK
        payload = pending.source[RECORDS_AT:header.size_bytes]
        refusal = compression.refused_by_java(codec, payload)
        if refusal is not None:
            raise InvalidRecordError(
                f"expected a payload that every Kafka client can read in the batch at byte "
                f"{header.position} of those given to append to {path}, found {refusal}; nothing "
                f"was appended",
                path=path, position=header.position,
            )
        records = compression.decompress(codec, payload, decompressed_bytes_max)
        PyObject_GetBuffer(records, &plain, PyBUF_SIMPLE)
        try:
            with nogil:
                outcome = walk_records(
                    <const uint8_t*> plain.buf, plain.len, header.record_count,
                    header.base_timestamp, <int32_t> (header.last_offset - header.base_offset),
                    &pending.summary,
                )
        finally:
            PyBuffer_Release(&plain)
        if outcome != BATCH_OK:
            self.refuse(outcome, pending, path, header.position)
        return 0

    cdef int check_client(
        self, str path, int64_t max_message_bytes, bint compacted, int64_t now_ms,
        int64_t before_max_ms, int64_t after_max_ms, bint log_append_time, bint coordinator
    ) except -1:
        cdef int64_t number
        cdef int64_t next_offset = 0
        cdef PendingBatch* pending
        cdef BatchHeader* header
        for number in range(self.count):
            pending = self.batches + number
            header = &pending.header
            place = None
            if header.size_bytes > max_message_bytes:
                raise RecordBatchTooLargeError(
                    f"expected a batch of at most max_message_bytes = {max_message_bytes}, found "
                    f"{header.size_bytes} bytes at byte {header.position} of those given to append "
                    f"to {path}; send smaller batches or raise max_message_bytes",
                    path=path, position=header.position,
                )
            if header.base_offset != 0 and header.base_offset != next_offset:
                place = f"base offset 0 or {next_offset}, found {header.base_offset}"
            elif header.record_count != header.last_offset - header.base_offset + 1:
                place = (
                    f"as many records as offsets, found {header.record_count} records for "
                    f"{header.last_offset - header.base_offset + 1} offsets"
                )
            elif header.record_count == 0:
                place = "at least one record, found none"
            elif header.attributes & CONTROL_BIT and not coordinator:
                place = "no control batch from a client, found one"
            elif (
                header.producer_id >= 0 and header.base_sequence < 0
                and not header.attributes & CONTROL_BIT
            ):
                place = f"a base sequence with producer id {header.producer_id}, found none"
            elif compacted and pending.summary.null_keys and not header.attributes & CONTROL_BIT:
                place = f"keys only (compacted), found {pending.summary.null_keys} records without"
            elif not pending.summary.consecutive and not header.attributes & CODEC_MASK:
                place = "offset deltas 0, 1, 2, ..., found others"
            if place is not None:
                raise InvalidRecordError(
                    f"expected {place}, in the batch at byte {header.position} of those given to "
                    f"append to {path}; nothing was appended",
                    path=path, position=header.position,
                )
            if header.attributes & LOG_APPEND_TIME_BIT:
                raise InvalidTimestampError(
                    f"expected a producer's own timestamps, found the LogAppendTime bit set in the "
                    f"batch at byte {header.position} of those given to append to {path}",
                    path=path, position=header.position,
                )
            if not log_append_time:
                self.check_timestamps(pending, path, now_ms, before_max_ms, after_max_ms)
            next_offset += header.record_count
        return 0

    cdef int check_timestamps(
        self, PendingBatch* pending, str path, int64_t now_ms, int64_t before_max_ms,
        int64_t after_max_ms
    ) except -1:
        cdef int64_t lowest = pending.summary.min_timestamp
        cdef int64_t highest = pending.summary.max_timestamp
        # Compared without adding to now_ms: both limits may be the largest int64.
        if (
            (highest > now_ms and highest - now_ms > after_max_ms)
            or (lowest < now_ms and <unsigned long long> now_ms - <unsigned long long> lowest
                > <unsigned long long> before_max_ms)
        ):
            raise InvalidTimestampError(
                f"expected record timestamps from {before_max_ms} ms before to {after_max_ms} ms "
                f"after {now_ms}, found {lowest} to {highest} in the batch at byte "
                f"{pending.header.position} of those given to append to {path}",
                path=path, position=pending.header.position,
            )
        return 0

    cdef int rewrite(self, int codec, object level, int64_t decompressed_bytes_max) except -1:
        cdef int64_t number
        cdef PendingBatch* pending
        cdef Py_buffer encoded
        cdef int64_t total = 0
        for number in range(self.count):
            pending = self.batches + number
            if (
                not pending.header.attributes & CONTROL_BIT
                and (
                    not pending.summary.consecutive
                    or (codec >= 0 and pending.header.attributes & CODEC_MASK != codec)
                )
            ):
                from replog._native import record_encoder

                target = codec if codec >= 0 else pending.header.attributes & CODEC_MASK
                batch = record_encoder.recode(
                    pending.source[:pending.header.size_bytes], target, level,
                    decompressed_bytes_max,
                )
                PyObject_GetBuffer(batch, &encoded, PyBUF_SIMPLE)
                self.rewritten.append(batch)
                pending.source = <const uint8_t*> encoded.buf
                parse_header(pending.source, encoded.len, pending.header.position, &pending.header)
                PyBuffer_Release(&encoded)
            total += pending.header.size_bytes
        self.length_bytes = total
        return 0

    cdef int stamp(
        self, int64_t base_offset, int32_t leader_epoch, int64_t append_time_ms
    ) except -1:
        self.max_timestamp = -1
        # No more offsets than bytes: the last one is representable, and the end behind it.
        if base_offset > OFFSET_MAX - self.length_bytes:
            raise OffsetOutOfRangeError(
                f"expected room for the records of an append below the last offset {OFFSET_MAX}, "
                f"found the log to end at {base_offset}; nothing was appended",
                offset=base_offset,
            )
        if self.stamp_all(base_offset, leader_epoch, append_time_ms):
            with nogil:
                self.sum_anew()
        self.part_count = <int> (2 * self.count)
        return 0

    cdef bint stamp_all(
        self, int64_t base_offset, int32_t leader_epoch, int64_t append_time_ms
    ) noexcept:
        """Stamp every header; whether one was changed in what its checksum covers."""
        cdef bint changed = False
        cdef int64_t number
        cdef PendingBatch* pending
        cdef BatchHeader* header
        cdef int64_t max_timestamp, span
        cdef int16_t attributes
        for number in range(self.count):
            pending = self.batches + number
            header = &pending.header
            memcpy(pending.stamp, pending.source, HEADER_BYTES)
            span = header.last_offset - header.base_offset
            header.base_offset = base_offset
            header.last_offset = base_offset + span
            header.leader_epoch = leader_epoch
            base_offset += span + 1
            store_int64(pending.stamp + BASE_OFFSET_AT, header.base_offset)
            store_int32(pending.stamp + LEADER_EPOCH_AT, leader_epoch)
            attributes = header.attributes & ~LOG_APPEND_TIME_BIT
            max_timestamp = pending.summary.max_timestamp
            if append_time_ms >= 0:
                attributes |= LOG_APPEND_TIME_BIT
                max_timestamp = append_time_ms
            if attributes != header.attributes or max_timestamp != header.max_timestamp:
                header.attributes = attributes
                header.max_timestamp = max_timestamp
                store_int16(pending.stamp + ATTRIBUTES_AT, attributes)
                store_int64(pending.stamp + MAX_TIMESTAMP_AT, max_timestamp)
                changed = True
            if max_timestamp > self.max_timestamp:
                self.max_timestamp = max_timestamp
            self.parts[2 * number].iov_base = pending.stamp
            self.parts[2 * number].iov_len = HEADER_BYTES
            self.parts[2 * number + 1].iov_base = <void*> (pending.source + RECORDS_AT)
            self.parts[2 * number + 1].iov_len = header.size_bytes - RECORDS_AT
        return changed

    cdef void sum_anew(self) noexcept nogil:
        """Checksum the batches whose stamp differs in what the checksum covers."""
        cdef int64_t number
        cdef PendingBatch* pending
        cdef uint32_t crc
        for number in range(self.count):
            pending = self.batches + number
            if not memcmp(
                pending.stamp + ATTRIBUTES_AT, pending.source + ATTRIBUTES_AT,
                HEADER_BYTES - ATTRIBUTES_AT,
            ):
                continue
            crc = crc32c(0, pending.stamp + ATTRIBUTES_AT, HEADER_BYTES - ATTRIBUTES_AT)
            crc = crc32c(
                crc, pending.source + RECORDS_AT, pending.header.size_bytes - RECORDS_AT
            )
            pending.header.crc = crc
            store_int32(pending.stamp + CRC_AT, <int32_t> crc)

    cdef int load_from_leader(
        self, const uint8_t* bytes, int64_t length, int64_t limit, str path, bint dense
    ) except -1:
        cdef int64_t at = 0
        cdef int64_t expected = -1
        cdef int32_t epoch = -1
        cdef int outcome = BATCH_OK
        cdef PendingBatch* pending
        self.release()
        self.max_timestamp = -1
        while at < length:
            if self.count == self.capacity:
                self.reserve(self.capacity * 4)
            pending = self.batches + self.count
            pending.source = bytes + at
            outcome = parse_header(pending.source, length - at, at, &pending.header)
            if outcome == BATCH_OK and not self.sum_matches(pending):
                outcome = BATCH_BAD_CRC
            if outcome == BATCH_PARTIAL or (
                outcome == BATCH_OK and at and (
                    pending.header.size_bytes > limit - at
                    or (limit < OFFSET_MAX and self.span_of(pending) > INT_MAX)
                )
            ):
                break
            if outcome != BATCH_OK:
                pending.header.position = at
                self.refuse(outcome, pending, path, at)
            if (
                pending.header.leader_epoch < epoch
                or (expected >= 0 and pending.header.base_offset < expected)
                or (dense and expected >= 0 and pending.header.base_offset != expected)
            ):
                raise OutOfOrderOffsetError(
                    f"expected the batch at byte {at} of those to append to {path} to start at "
                    f"offset {expected} in leader epoch {epoch} or later, found offset "
                    f"{pending.header.base_offset} in epoch {pending.header.leader_epoch}; nothing "
                    f"was appended",
                    path=path, position=at, offset=pending.header.base_offset,
                )
            expected = pending.header.last_offset + 1
            epoch = pending.header.leader_epoch
            if pending.header.max_timestamp > self.max_timestamp:
                self.max_timestamp = pending.header.max_timestamp
            self.count += 1
            at += pending.header.size_bytes
        self.length_bytes = at
        self.parts[0].iov_base = <void*> bytes
        self.parts[0].iov_len = at
        self.part_count = 1
        return 0

    cdef int64_t span_of(self, const PendingBatch* last) noexcept:
        """How far the last offset lies behind the first: indexes keep that in 31 bits."""
        return last.header.last_offset - self.batches[0].header.base_offset

    cdef bint fits(self, int64_t segment_bytes) noexcept:
        return (
            self.length_bytes <= segment_bytes
            and self.span_of(self.batches + self.count - 1) <= INT_MAX
        )

    cdef bint sum_matches(self, PendingBatch* pending) noexcept:
        cdef bint matches
        if pending.header.size_bytes < GIL_KEPT_BYTES:
            return crc_matches(pending.source, &pending.header)
        with nogil:
            matches = crc_matches(pending.source, &pending.header)
        return matches

    cdef int load_empty(
        self, int64_t base_offset, int64_t last_offset, int32_t leader_epoch
    ) except -1:
        cdef PendingBatch* pending = self.batches
        cdef uint8_t* bytes = pending.stamp
        self.release()
        # All ones is -1: no epoch, producer, sequence or timestamp.
        memset(bytes, 0xFF, HEADER_BYTES)
        store_int64(bytes + BASE_OFFSET_AT, base_offset)
        store_int32(bytes + BATCH_LENGTH_AT, HEADER_BYTES - LOG_OVERHEAD)
        store_int32(bytes + LEADER_EPOCH_AT, leader_epoch)
        bytes[MAGIC_AT] = CURRENT_MAGIC
        store_int16(bytes + ATTRIBUTES_AT, 0)
        store_int32(bytes + LAST_OFFSET_DELTA_AT, <int32_t> (last_offset - base_offset))
        store_int32(bytes + RECORD_COUNT_AT, 0)
        store_int32(bytes + CRC_AT, <int32_t> crc32c(
            0, bytes + ATTRIBUTES_AT, HEADER_BYTES - ATTRIBUTES_AT
        ))
        parse_header(bytes, HEADER_BYTES, 0, &pending.header)
        self.parts[0].iov_base = bytes
        self.parts[0].iov_len = HEADER_BYTES
        self.part_count = 1
        self.count = 1
        self.length_bytes = HEADER_BYTES
        self.max_timestamp = -1
        return 0
