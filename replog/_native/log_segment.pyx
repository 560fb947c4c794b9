# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""One data file of the log with its offset, time and transaction index.

The data file holds the truth; the indexes are derived and are rebuilt, unasked, when one is
missing, fails its check or leads to a place that is no batch. Files open on first use, so that
opening a log of a thousand segments costs a thousand names. A segment does not know its
neighbours, the epochs or the producers: the log does. After a crash the data file may end in a
torn batch, and the indexes may be anything; `log_recovery` puts both right.

Its log's guard is held wherever state changes: by the verbs of the log, and here by a reader that
opens a file or makes an index anew.
"""

from libc.limits cimport INT_MAX
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc

from replog._native.batch_format cimport HEADER_BYTES
from replog._native.batch_set cimport BatchSet
from replog._native.file_cut cimport cut_file
from replog._native.mapped_file cimport Mapping
from replog._native.producer_state cimport ProducerState
from replog._native.record_batch cimport (
    BATCH_BAD_CRC, BATCH_BAD_OFFSET, BATCH_OK, BatchHeader, crc_matches, describe, parse_header,
    scan_batches,
)
from replog._native.segment_files cimport SegmentFiles

from replog.errors import CorruptBatchError

cdef enum:
    SCAN_CHUNK = 1024


cdef class LogSegment(SegmentFiles):
    def __init__(self, str directory, int64_t base_offset, *, int64_t index_interval_bytes,
                 int64_t index_bytes_max, int64_t map_bytes, bint dense=False,
                 bint missing_index=False, int64_t created_ms=-1):
        self.base_offset = base_offset
        self.prefix = f"{directory}/{base_offset:020d}"
        self.index_interval_bytes = index_interval_bytes
        self.index_bytes_max = index_bytes_max
        self.map_bytes = map_bytes
        self.dense = dense
        self.missing_index = missing_index
        self.largest_timestamp = -1
        self.largest_timestamp_offset = -1
        self.first_timestamp = -1
        self.created_ms = created_ms
        self.joined_end = -1
        self.ceiling_as_of = -1

    def create(self):
        """As SegmentFiles.create: what is in new files is known."""
        SegmentFiles.create(self)
        self.indexes_checked = True
        self.timestamp_known = True

    cdef int open_indexes(self) except -1:
        if self.indexes_checked:
            return 0
        self.open()
        self.hold()
        try:
            if self.indexes_checked:
                return 0
            if self.offsets is None:
                self.make_index_files()
            if self.missing_index or not self.offsets.check() or not self.times.check() or (
                self.offsets.entry_count
                and not 0 <= self.offsets.last_position < self.file.size_bytes
            ) or (not self.times.entry_count and self.has_timestamp()):
                self.rebuild_indexes()
            self.indexes_checked = True
        finally:
            self.let_go()
        return 0

    cdef bint has_timestamp(self) except -1:
        """Whether the first batch has one: then the time index has an entry, or was not filled."""
        cdef BatchHeader header
        cdef Mapping held
        if self.file.size_bytes < HEADER_BYTES:
            return False
        held = self.file.map(self.file.size_bytes)
        return parse_header(held.address, self.file.size_bytes, 0, &header) == BATCH_OK and (
            header.max_timestamp >= 0
        )

    cdef int open_timestamp(self) except -1:
        """Largest timestamp from the last time entry, as Kafka loads it; -1 if there is none."""
        if self.timestamp_known:
            return 0
        self.open_indexes()
        self.hold()
        try:
            if not self.timestamp_known:
                self.largest_timestamp = self.times.last_timestamp if self.times.entry_count else -1
                self.largest_timestamp_offset = (
                    self.times.last_offset if self.times.entry_count else self.base_offset
                )
                self.timestamp_known = True
        finally:
            self.let_go()
        return 0

    cdef int64_t time_of_roll(self) except? -1:
        self.open_timestamp()
        return self.largest_timestamp if self.largest_timestamp >= 0 else self.modified_ms

    @property
    def max_timestamp(self):
        """Largest timestamp in ms, -1 for none."""
        self.open_timestamp()
        return self.largest_timestamp

    @property
    def offset_index(self):
        self.open_indexes()
        return self.offsets

    @property
    def time_index(self):
        self.open_indexes()
        return self.times

    cdef bint must_roll(self, BatchSet batches, int64_t last_offset, int64_t segment_bytes,
                        int64_t segment_ms, int64_t now_ms) except -1:
        """Whether it is full or old enough, as Kafka's LogSegment.shouldRoll has it: by record time
        where the records have one.
        """
        cdef BatchHeader first
        cdef int64_t waited
        self.open_indexes()
        if last_offset - self.base_offset > INT_MAX:
            return True
        if self.file.size_bytes > segment_bytes - batches.length_bytes:
            return True
        if self.file.size_bytes == 0:
            return self.offsets.full or self.times.full
        if self.offsets.full or self.times.full:
            return True
        if self.first_timestamp < 0 and self.find(self.base_offset, &first):
            self.first_timestamp = first.max_timestamp
        if self.first_timestamp >= 0:
            waited = batches.max_timestamp - self.first_timestamp
        else:
            waited = now_ms - self.created_ms
        return waited > segment_ms

    cdef int append(self, BatchSet batches) except -1:
        """Write the batches, all or none. Raises what the file raises."""
        self.open_timestamp()
        self.file.append(batches.parts, batches.part_count, batches.length_bytes)
        return 0

    cdef int index(self, BatchSet batches, int64_t position) except -1:
        """Index what append() has written at `position`, batch by batch as Kafka 4.2 does."""
        cdef int64_t number
        cdef BatchHeader* header
        if position == 0:
            self.first_timestamp = batches.max_timestamp
        for number in range(batches.count):
            header = &batches.batches[number].header
            header.position = position
            if header.max_timestamp > self.largest_timestamp:
                self.largest_timestamp = header.max_timestamp
                self.largest_timestamp_offset = header.last_offset
            if self.bytes_since_entry > self.index_interval_bytes:
                self.offsets.append(header.last_offset, position)
                self.times.maybe_append(
                    self.largest_timestamp, self.largest_timestamp_offset, False
                )
                self.bytes_since_entry = 0
            self.bytes_since_entry += header.size_bytes
            position += header.size_bytes
        return 0

    cdef int find(self, int64_t offset, BatchHeader* header) except -1:
        cdef int64_t floor = self.base_offset
        cdef int64_t position
        cdef Mapping held
        cdef const uint8_t* bytes
        self.open_indexes()
        position = self.offsets.lookup(offset, &floor)
        if position:
            # An entry is trusted only if it leads to a batch that can hold what it claims.
            held = self.file.map(max(self.map_bytes, self.file.size_bytes))
            bytes = held.address
            if (
                position < 0 or position > self.file.size_bytes - HEADER_BYTES
                or parse_header(
                    bytes + position, self.file.size_bytes - position, position, header
                ) != BATCH_OK
                or header.base_offset > floor or header.base_offset < self.base_offset
                or header.base_offset > offset
            ):
                self.rebuild_indexes()
                position = self.offsets.lookup(offset, &floor)
        return self.walk(offset, position, self.base_offset, header)

    cdef int walk(
        self, int64_t offset, int64_t position, int64_t floor, BatchHeader* header
    ) except -1:
        """First batch from `position` on with last_offset >= offset; floor: least base offset."""
        cdef int64_t end = self.file.size_bytes
        cdef int outcome = BATCH_OK
        cdef bint exact = self.dense and position == 0
        cdef Mapping held
        cdef const uint8_t* bytes
        if position < 0 or position >= end:
            return 0
        # The GIL stays held: a truncation from another thread must not shorten the file meanwhile.
        held = self.file.map(max(self.map_bytes, end))
        bytes = held.address
        while position < end:
            outcome = parse_header(bytes + position, end - position, position, header)
            if header.base_offset < floor or (exact and header.base_offset != floor):
                outcome = outcome or BATCH_BAD_OFFSET
            if outcome != BATCH_OK or header.last_offset >= offset:
                break
            exact = self.dense
            floor = header.last_offset + 1
            position += header.size_bytes
        if outcome != BATCH_OK:
            self.refuse(outcome, position)
        return position < end

    def refuse(self, int outcome, int64_t position):
        """Raise CorruptBatchError for damage at `position` of the data file."""
        hole = outcome == BATCH_BAD_OFFSET and self.dense
        or_else = ", or open it with cleanup_policy='compact' if it ever was" if hole else ""
        raise CorruptBatchError(
            f"expected a whole record batch at byte {position} of {self.path}, found damage: "
            f"{describe(outcome)}; the bytes below are good, repair it from a replica{or_else}",
            path=self.path, position=position, offset=self.base_offset,
        )

    cdef int replay(
        self, ProducerState producers, int64_t offset, int64_t end_offset
    ) except -1:
        """Apply the batches of [offset, end_offset) to the producers; headers only."""
        cdef BatchHeader first
        cdef BatchHeader* headers
        cdef int64_t found = 0, end = 0, position, number, size
        cdef int outcome = BATCH_OK
        cdef Mapping held
        if not self.find(offset, &first):
            return 0
        position = first.position
        size = self.file.size_bytes
        headers = <BatchHeader*> malloc(SCAN_CHUNK * sizeof(BatchHeader))
        if headers == NULL:
            raise MemoryError
        try:
            held = self.file.map(max(self.map_bytes, size))
            while position < size and outcome == BATCH_OK:
                outcome = scan_batches(
                    held.address + position, size - position, position, False, False, -1, -1,
                    headers, SCAN_CHUNK, &found, &end,
                )
                for number in range(found):
                    if headers[number].base_offset >= end_offset:
                        return 0
                    # The first may begin below `offset`, where records were deleted inside a batch.
                    if headers[number].producer_id >= 0:
                        producers.update(&headers[number])
                position += end
        finally:
            free(headers)
        if outcome != BATCH_OK:
            self.refuse(outcome, position)
        return 0

    cdef int add_entries(
        self, const BatchHeader* headers, int64_t count, int64_t* indexed
    ) except -1:
        """Index batches of a walk over the file; *indexed: the last one's place."""
        cdef int64_t number
        cdef const BatchHeader* header
        for number in range(count):
            header = headers + number
            if header.max_timestamp > self.largest_timestamp:
                self.largest_timestamp = header.max_timestamp
                self.largest_timestamp_offset = header.last_offset
            if self.first_timestamp < 0:
                self.first_timestamp = header.max_timestamp
            if header.position - indexed[0] > self.index_interval_bytes:
                self.offsets.append(header.last_offset, header.position)
                self.times.maybe_append(
                    self.largest_timestamp, self.largest_timestamp_offset, False
                )
                indexed[0] = header.position
        return 0

    cdef int64_t time_floor(self, int64_t timestamp) except -2:
        """An offset that no record at or after `timestamp` lies below, by the time index."""
        cdef BatchHeader header
        cdef int64_t found = -1, offset
        self.open_indexes()
        offset = self.times.lookup(timestamp, &found)
        # The index has no checksum: an entry counts if the batch it names has its timestamp.
        if found >= 0 and (
            not self.find(offset, &header) or header.max_timestamp != found
        ):
            self.rebuild_indexes()
            offset = self.times.lookup(timestamp, &found)
        return offset

    cdef int64_t chained(self, const BatchHeader* headers, int64_t count, int64_t* last) noexcept:
        """How many of the batches follow on from offset *last in this segment; *last moves on."""
        cdef int64_t number
        cdef const BatchHeader* header
        for number in range(count):
            header = headers + number
            if header.base_offset <= last[0] or header.last_offset - self.base_offset > INT_MAX or (
                self.dense and header.base_offset != last[0] + 1
            ):
                return number
            last[0] = header.last_offset
        return count

    def reset_indexes(self):
        """Empty both indexes and what was derived of timestamps; a walk refills them."""
        self.open()
        if self.offsets is None:
            self.make_index_files()
        self.offsets.reset()
        self.times.reset()
        self.missing_index = False
        self.indexes_checked = True
        self.timestamp_known = True
        if self.guard is not None:
            self.guard.indexes_remade += 1
        self.largest_timestamp = -1
        self.largest_timestamp_offset = -1
        self.first_timestamp = -1
        self.bytes_since_entry = 0

    def rebuild_indexes(self):
        """Make both indexes anew from the data file, which must be whole to its end."""
        self.hold()
        try:
            self.fill_indexes()
        finally:
            self.let_go()

    def fill_indexes(self):
        """As rebuild_indexes, whose caller holds the guard."""
        cdef BatchHeader* headers
        cdef int64_t position = 0, found = 0, end = 0, indexed = 0, last = self.base_offset - 1
        cdef int outcome = BATCH_OK
        cdef Mapping held
        cdef int64_t size, good
        self.reset_indexes()
        size = self.file.size_bytes
        if size == 0:
            return
        # Whoever asks meanwhile waits for the guard; if this ends early, the next one begins anew.
        self.indexes_checked = False
        self.timestamp_known = False
        self.missing_index = True
        held = self.file.map(max(self.map_bytes, size))
        headers = <BatchHeader*> malloc(SCAN_CHUNK * sizeof(BatchHeader))
        if headers == NULL:
            raise MemoryError
        try:
            while position < size and outcome == BATCH_OK:
                # With the GIL held, as in walk(): rare, and nothing may append meanwhile.
                outcome = scan_batches(
                    held.address + position, size - position, position, True, False, last, -1,
                    headers, SCAN_CHUNK, &found, &end,
                )
                good = self.chained(headers, found, &last)
                self.add_entries(headers, good, &indexed)
                if good < found:
                    end = headers[good].position - position
                    outcome = BATCH_BAD_OFFSET
                position += end
        finally:
            free(headers)
        self.indexes_checked = True
        self.timestamp_known = True
        self.missing_index = False
        if outcome != BATCH_OK:
            self.refuse(outcome, position)
        self.close_times()

    def close_times(self):
        """Add the time index's closing entry: the largest timestamp must be findable."""
        self.open_timestamp()
        if self.largest_timestamp >= 0:
            self.times.maybe_append(self.largest_timestamp, self.largest_timestamp_offset, True)

    def next_offset(self):
        """The offset behind the last batch; the base offset if there is none."""
        cdef BatchHeader header
        cdef Mapping held
        cdef int64_t position, floor = self.base_offset
        cdef int64_t last = self.base_offset - 1
        self.open_indexes()
        if self.file.size_bytes == 0:
            return self.base_offset
        if self.offsets.entry_count and (
            not self.find(self.offsets.last_offset, &header)
            or header.last_offset != self.offsets.last_offset
        ):
            self.rebuild_indexes()
        # Read only now: either of the two above may have made the index anew.
        position = self.offsets.last_position if self.offsets.entry_count else 0
        while position < self.file.size_bytes and self.walk(floor, position, floor, &header):
            # What says where the log ends is not trusted unseen, however clean the stop was.
            held = self.file.map(self.file.size_bytes)
            if not crc_matches(held.address + header.position, &header):
                self.refuse(BATCH_BAD_CRC, header.position)
            last = header.last_offset
            floor = last + 1
            position = header.position + header.size_bytes
        self.check_last_time(last)
        return last + 1

    cdef int check_last_time(self, int64_t last_offset) except -1:
        """Rebuild the indexes if the last time entry, which new ones follow, is no batch's."""
        cdef BatchHeader header
        if self.times.entry_count == 0:
            return 0
        try:
            if (
                self.times.last_offset <= last_offset
                and self.find(self.times.last_offset, &header)
                and header.max_timestamp == self.times.last_timestamp
            ):
                return 0
        except CorruptBatchError:
            return 0   # reads will say so; opening checks no bytes below the recovery point
        self.rebuild_indexes()
        return 0

    cdef int cut(self, int64_t position, int64_t offset) except -1:
        """Cut the data file at `position` and the indexes at `offset`."""
        cdef bint stamped = self.timestamp_known and self.largest_timestamp >= 0
        # The batch that holds the largest one stays: nothing to look for, however long the segment.
        cdef bint kept = stamped and self.largest_timestamp_offset < offset
        self.open_indexes()
        self.offsets.truncate_to(offset)
        self.times.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self.shrink(position)
        self.bytes_since_entry = 0
        self.ceiling_as_of = -1
        if not kept:
            self.timestamp_known = False
            self.open_timestamp()
            if stamped or self.largest_timestamp >= 0:
                self.scan_timestamp()
        if position == 0:
            self.first_timestamp = -1
        return 0

    cdef int scan_timestamp(self) except -1:
        """Note larger timestamps in the batches behind the last time entry, few as those are."""
        cdef int64_t floor = self.base_offset
        cdef int64_t position = self.offsets.lookup(self.largest_timestamp_offset, &floor)
        cdef int64_t end = self.file.size_bytes
        cdef int outcome
        cdef Mapping held
        cdef BatchHeader header
        if position >= end:
            return 0
        held = self.file.map(max(self.map_bytes, end))
        while position < end:
            outcome = parse_header(held.address + position, end - position, position, &header)
            if outcome != BATCH_OK:
                # An entry that leads astray is for the look-up to mend; a cut need not fail for it.
                break
            if header.max_timestamp > self.largest_timestamp:
                self.largest_timestamp = header.max_timestamp
                self.largest_timestamp_offset = header.last_offset
            position += header.size_bytes
        return 0

    cdef int shrink(self, int64_t position) except -1:
        """Shorten the data file; durable after the next flush_records()."""
        self.file = cut_file(self.file, position, ".cleaned", True)
        return 0

    def seal(self):
        """Finish an active segment that is rolled: closing time entry, index tails written out."""
        self.close_times()
        self.offsets.seal()
        self.times.seal()

    def close(self):
        """Write out what is in memory and give the files back, in any case; views stay readable."""
        try:
            if self.indexes_checked and not self.missing_index:
                self.seal()
        finally:
            self.abandon()
