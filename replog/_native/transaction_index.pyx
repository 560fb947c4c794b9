# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""The `.txnindex` of one segment: what read_committed readers have to leave out.

Entries of 34 bytes, big-endian, by growing last_offset; the file is there only if it has entries:

    +---------+-------------+--------------+-------------+--------------------+
    | version | producer_id | first_offset | last_offset | last_stable_offset |
    | i16 = 0 | i64         | i64          | i64 (abort) | i64                |
    +---------+-------------+--------------+-------------+--------------------+

Owned by the segment. Derived data: an entry torn by a crash is ignored, and cut before the next
append; a file that check() refuses is rebuilt from the log. Every append reaches the file at once
(aborts are rare), and is durable after flush() and, where the file is new, a sync of its directory.
"""

from libc.stdint cimport int64_t, uint8_t

from collections import namedtuple

from replog._native.mapped_file cimport MappedFile, Mapping, iovec
from replog._native.record_batch cimport load_int16, load_int64, store_int16, store_int64

from replog._native.mapped_file import remove, rename
from replog.errors import CorruptFileError, InvariantViolation, LogClosedError

cdef enum:
    ENTRY_BYTES = 34
    CURRENT_VERSION = 0
    NONE = -1

AbortedTransaction = namedtuple(
    "AbortedTransaction", "producer_id first_offset last_offset last_stable_offset"
)


cdef object entry_at(const uint8_t* at):
    return AbortedTransaction(
        load_int64(at + 2), load_int64(at + 10), load_int64(at + 18), load_int64(at + 26)
    )


def read_transactions(const uint8_t[::1] content not None, str path=None):
    """Entries of a `.txnindex`; an incomplete last one is left out.

    Raises CorruptFileError for a version that is not 0; `path` is only for it.
    """
    cdef Py_ssize_t _place
    found = []
    for place in range(content.shape[0] // ENTRY_BYTES):
        if load_int16(&content[place * ENTRY_BYTES]) != CURRENT_VERSION:
            raise CorruptFileError(
                f"expected version {CURRENT_VERSION} in each entry of the transaction index "
                f"{path or ''}, found another at position {place * ENTRY_BYTES}; delete it, and it "
                f"is rebuilt from the log",
                path=path,
                position=place * ENTRY_BYTES,
            )
        found.append(entry_at(&content[place * ENTRY_BYTES]))
    return found


cdef class TransactionIndex:
    """Aborted transactions of one segment, in the order of their markers."""

    def __init__(self, str path not None, int64_t base_offset):
        """Opens nothing yet; the file is made by the first append."""
        self.path = path
        self.base_offset = base_offset
        self.last_offset = NONE

    cdef int open_file(self, bint create) except -1:
        """Have self.file if there is a file, or make it."""
        if self.closed:
            raise LogClosedError(
                f"expected an open transaction index; {self.path!r} was closed", path=self.path
            )
        if self.file is None and not self.looked:
            try:
                self.file = MappedFile(self.path, writable=True)
            except FileNotFoundError:
                self.file = None
            self.looked = True  # not sooner: an opening that failed has found nothing out
        if self.file is None and create:
            self.file = MappedFile(self.path, writable=True, create=True)
            self.created = True
        return 0

    cdef Py_ssize_t whole_entries(self) except -1:
        self.open_file(False)
        return 0 if self.file is None else <Py_ssize_t>(self.file.size_bytes // ENTRY_BYTES)

    cdef int append_fields(
        self,
        int64_t producer_id,
        int64_t first_offset,
        int64_t last_offset,
        int64_t last_stable_offset,
    ) except -1:
        cdef uint8_t[ENTRY_BYTES] entry
        cdef iovec part
        if last_offset <= self.last_offset:
            raise InvariantViolation(
                f"expected an abort marker behind offset {self.last_offset} in {self.path!r}, "
                f"found one at {last_offset}. This is a bug in replog."
            )
        self.open_file(True)
        if self.file.size_bytes % ENTRY_BYTES:
            self.file.truncate(self.whole_entries() * ENTRY_BYTES)
        store_int16(entry, CURRENT_VERSION)
        store_int64(entry + 2, producer_id)
        store_int64(entry + 10, first_offset)
        store_int64(entry + 18, last_offset)
        store_int64(entry + 26, last_stable_offset)
        part.iov_base = entry
        part.iov_len = ENTRY_BYTES
        self.file.append(&part, 1, ENTRY_BYTES)
        self.last_offset = last_offset
        return 0

    def make_file(self):
        """See that there is a file: what is appended next then needs room for an entry only."""
        self.open_file(True)

    def append(self, aborted):
        """Add an AbortedTransaction, or a CompletedTransaction that was aborted.

        Raises NoSpaceError (nothing was kept) or LogFailedError.
        """
        self.append_fields(
            aborted.producer_id, aborted.first_offset, aborted.last_offset,
            aborted.last_stable_offset,
        )

    @property
    def entry_count(self):
        """Number of whole entries."""
        return self.whole_entries()

    def entries(self):
        """Every AbortedTransaction of the segment."""
        cdef Py_ssize_t count = self.whole_entries()
        cdef Py_ssize_t place
        cdef Mapping held
        cdef const uint8_t* at
        if count == 0:
            return []
        held = self.file.map(count * ENTRY_BYTES)
        at = held.address
        return [entry_at(at + place * ENTRY_BYTES) for place in range(count)]

    def collect_aborted(self, int64_t fetch_offset, int64_t upper_bound):
        """Transactions that overlap [fetch_offset, upper_bound), and whether those are all.

        Where they are not all, the next segment's index has to be asked, too.
        """
        cdef Py_ssize_t count = self.whole_entries()
        cdef Py_ssize_t _place
        cdef Mapping held
        cdef const uint8_t* at
        found = []
        if count == 0:
            return found, False
        held = self.file.map(count * ENTRY_BYTES)
        at = held.address
        for _place in range(count):
            if load_int64(at + 18) >= fetch_offset and load_int64(at + 10) < upper_bound:
                found.append(entry_at(at))
            if load_int64(at + 26) >= upper_bound:
                return found, True
            at += ENTRY_BYTES
        return found, False

    def truncate_to(self, int64_t offset):
        """Drop from the first entry with last_offset >= `offset` on; True if any went."""
        cdef Py_ssize_t count = self.whole_entries()
        cdef Py_ssize_t place
        cdef Mapping held
        cdef const uint8_t* at
        cdef int64_t kept_last = NONE
        if count == 0:
            return False
        held = self.file.map(count * ENTRY_BYTES)
        at = held.address
        for place in range(count):
            if load_int64(at + place * ENTRY_BYTES + 18) >= offset:
                self.file.truncate(place * ENTRY_BYTES)
                self.last_offset = kept_last
                return True
            kept_last = load_int64(at + place * ENTRY_BYTES + 18)
        return False

    def replace(self, entries):
        """Have these entries and no others, durably; on an error, and after a crash, these or all
        that there were: of a part of them nobody could tell that it is one.
        """
        cdef TransactionIndex fresh
        self.open_file(False)
        fresh = TransactionIndex(self.path + ".tmp", self.base_offset)
        try:
            fresh.make_file()
            fresh.reset()
            for entry in entries:
                fresh.append(entry)
            fresh.flush()
            fresh.rename_to(self.path)
        except BaseException:
            fresh.close()
            raise
        if self.file is not None:
            self.file.close()
        self.file, self.last_offset, self.created = fresh.file, fresh.last_offset, True

    def reset(self):
        """Drop every entry; the file, if there is one, stays and is empty."""
        self.open_file(False)
        self.last_offset = NONE
        if self.file is not None:
            self.file.truncate(0)

    def flush(self):
        """Make the entries durable (the directory of a new file is the owner's to sync)."""
        if self.file is not None and not self.closed:
            self.file.flush()

    def rename_to(self, str path not None):
        """Give the file, if there is one, another name."""
        if self.file is not None:
            self.file.rename_to(path)
        else:
            try:
                rename(self.path, path)
            except FileNotFoundError:
                self.looked = True
        self.path = path

    def close(self):
        """Give the descriptor back; any use but delete() then raises LogClosedError."""
        self.closed = True
        if self.file is not None:
            self.file.close()
            self.file = None

    def delete(self):
        """Close, and remove the file if there is one."""
        self.close()
        try:
            remove(self.path)
        except FileNotFoundError:
            return

    def check(self):
        """Whether the file can be trusted: whole entries, version 0, offsets that fit and grow."""
        cdef Py_ssize_t count = self.whole_entries()
        cdef Py_ssize_t _place
        cdef Mapping held
        cdef const uint8_t* at
        cdef int64_t previous = self.base_offset - 1
        if self.file is None:
            return True
        if self.file.size_bytes % ENTRY_BYTES:
            return False
        if count == 0:
            return True
        held = self.file.map(count * ENTRY_BYTES)
        at = held.address
        for _place in range(count):
            if (
                load_int16(at) != CURRENT_VERSION
                or load_int64(at + 2) < 0
                or load_int64(at + 10) < 0
                or load_int64(at + 10) > load_int64(at + 18)
                or load_int64(at + 18) <= previous
                or load_int64(at + 26) < 0
                or load_int64(at + 26) > load_int64(at + 18) + 1
            ):
                return False
            previous = load_int64(at + 18)
            at += ENTRY_BYTES
        return True
