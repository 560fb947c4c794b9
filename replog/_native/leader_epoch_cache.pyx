# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Which leader wrote which offsets: (leader_epoch, start_offset), both strictly increasing.

    entry i covers offsets [start_offset i, start_offset i+1), the last one [start_offset, log end)

Rules are those of Kafka's LeaderEpochFileCache (KIP-101, KIP-279). Memory only: whoever owns the
log writes `leader-epoch-checkpoint` when a call here returns True, before the first record of a new
epoch is acknowledged. One writer at a time; the owner of the log serialises.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

import numpy as np

from replog.errors import UsageError


cdef enum:
    UNKNOWN = -1
    FIRST_CAPACITY = 8
    CHECKPOINT_VERSION = 0
    COPY_FROM_COUNT = 1024     # look-ups in one call from which the GIL is given up
    DIGITS_MAX = 20
    ENTRY_CHARACTERS_MAX = 32  # an epoch, a start offset, and what separates them
    SPACE = 32
    LINE_FEED = 10


cdef inline Py_ssize_t count_up_to(
    const int32_t* epochs, Py_ssize_t entry_count, int32_t epoch
) noexcept nogil:
    """Number of entries whose epoch is <= `epoch`. Branch-free: the answers are not predictable."""
    cdef const int32_t* base = epochs
    cdef Py_ssize_t length = entry_count
    cdef Py_ssize_t half
    if length == 0:
        return 0
    while length > 1:
        half = length >> 1
        # A product, since compilers make a jump of a conditional here.
        base += half * <Py_ssize_t>(base[half - 1] <= epoch)
        length -= half
    return (base - epochs) + (1 if base[0] <= epoch else 0)


cdef inline int32_t find_among(
    const int32_t* epochs,
    const int64_t* start_offsets,
    Py_ssize_t entry_count,
    int32_t epoch,
    int64_t log_end_offset,
    int64_t* end_offset,
) noexcept nogil:
    cdef Py_ssize_t not_higher
    end_offset[0] = UNKNOWN
    if epoch == UNKNOWN or entry_count == 0:
        return UNKNOWN
    not_higher = count_up_to(epochs, entry_count, epoch)
    if not_higher == entry_count:
        if epochs[not_higher - 1] != epoch:
            return UNKNOWN
        end_offset[0] = log_end_offset
        return epoch
    end_offset[0] = start_offsets[not_higher]
    return epoch if not_higher == 0 else epochs[not_higher - 1]


cdef void find_each(
    const int32_t* epochs,
    const int64_t* start_offsets,
    Py_ssize_t entry_count,
    const int32_t* asked,
    Py_ssize_t count,
    int64_t log_end_offset,
    int32_t* found,
    int64_t* end_offsets,
) noexcept nogil:
    """asked, found and end_offsets hold `count` places each."""
    cdef Py_ssize_t place
    for place in range(count):
        found[place] = find_among(
            epochs, start_offsets, entry_count, asked[place], log_end_offset, &end_offsets[place]
        )


cdef inline char* put_number(char* at, int64_t number, char end) noexcept nogil:
    """Write a number from 0 on in decimal, then `end`; returns the place behind."""
    cdef char[DIGITS_MAX] digits
    cdef int count = 0
    while True:
        digits[count] = <char>(48 + number % 10)
        count += 1
        number //= 10
        if number == 0:
            break
    while count:
        count -= 1
        at[0] = digits[count]
        at += 1
    at[0] = end
    return at + 1


cdef class LeaderEpochCache:
    """The epochs of one log. Unknown epochs and offsets are -1, as in Kafka's protocol."""

    def __cinit__(self, entries=()):
        self.epochs = NULL
        self.start_offsets = NULL
        self.entry_count = 0
        self.capacity = 0

    def __init__(self, entries=()):
        """Replay `entries` of (epoch, start_offset) through assign: a file out of order heals."""
        for epoch, start_offset in entries:
            self.maybe_assign(epoch, start_offset)

    def __dealloc__(self):
        free(self.epochs)
        free(self.start_offsets)

    def __len__(self):
        return self.entry_count

    cdef int reserve(self, Py_ssize_t entry_count) except -1:
        cdef Py_ssize_t capacity
        cdef void* grown
        if entry_count <= self.capacity:
            return 0
        capacity = max(<Py_ssize_t>FIRST_CAPACITY, self.capacity * 2, entry_count)
        grown = realloc(self.epochs, <size_t>capacity * sizeof(int32_t))
        if grown == NULL:
            raise MemoryError()
        self.epochs = <int32_t*>grown
        grown = realloc(self.start_offsets, <size_t>capacity * sizeof(int64_t))
        if grown == NULL:
            raise MemoryError()
        self.start_offsets = <int64_t*>grown
        self.capacity = capacity
        return 0

    cdef int32_t latest(self) noexcept nogil:
        return self.epochs[self.entry_count - 1] if self.entry_count else UNKNOWN

    cdef bint maybe_assign(self, int32_t epoch, int64_t start_offset) except -1:
        cdef Py_ssize_t kept = self.entry_count
        if epoch < 0 or start_offset < 0:
            raise UsageError(
                f"expected a leader epoch and a start offset >= 0, found epoch {epoch} "
                f"at offset {start_offset}",
                leader_epoch=epoch,
                offset=start_offset,
            )
        if kept and self.epochs[kept - 1] == epoch and self.start_offsets[kept - 1] <= start_offset:
            return False
        # A lower epoch erases the higher ones, and an epoch without records gives way to the next.
        while kept and (
            self.epochs[kept - 1] >= epoch or self.start_offsets[kept - 1] >= start_offset
        ):
            kept -= 1
        self.reserve(kept + 1)
        self.text = None
        self.epochs[kept] = epoch
        self.start_offsets[kept] = start_offset
        self.entry_count = kept + 1
        return True

    def assign(self, int32_t epoch, int64_t start_offset):
        """Record that `epoch` begins at `start_offset`; True if the cache changed.

        Raises UsageError if either is negative.
        """
        return self.maybe_assign(epoch, start_offset)

    cdef int32_t find_end_offset(
        self, int32_t epoch, int64_t log_end_offset, int64_t* end_offset
    ) noexcept nogil:
        return find_among(
            self.epochs, self.start_offsets, self.entry_count, epoch, log_end_offset, end_offset
        )

    def end_offset_for(self, int32_t epoch, int64_t log_end_offset):
        """(largest epoch <= `epoch`, its exclusive end), or (-1, -1) if that is not known.

        The latest epoch ends at `log_end_offset`. An epoch below the first one is answered with
        itself and the start of the first (what came before has been deleted). Source: KIP-279.
        """
        cdef int64_t end_offset
        cdef int32_t found = self.find_end_offset(epoch, log_end_offset, &end_offset)
        return found, end_offset

    def end_offsets_for(self, epochs, int64_t log_end_offset):
        """end_offset_for of each of `epochs` in one call: arrays of epochs and of end offsets."""
        asked = np.ascontiguousarray(epochs, dtype=np.int32).reshape(-1)
        found = np.empty(len(asked), dtype=np.int32)
        ends = np.empty(len(asked), dtype=np.int64)
        cdef const int32_t[::1] asked_view = asked
        cdef int32_t[::1] found_view = found
        cdef int64_t[::1] ends_view = ends
        cdef Py_ssize_t count = asked_view.shape[0]
        cdef Py_ssize_t entry_count = self.entry_count
        cdef int32_t* epochs_copy
        cdef int64_t* starts_copy
        if count == 0:
            return found, ends
        if count < COPY_FROM_COUNT or count < entry_count // 8:
            # Short: not worth the copy that giving up the GIL costs.
            find_each(
                self.epochs, self.start_offsets, entry_count, &asked_view[0], count,
                log_end_offset, &found_view[0], &ends_view[0],
            )
            return found, ends
        # Without the GIL an append may assign, and so move the arrays: look up in a copy.
        epochs_copy = <int32_t*>malloc(<size_t>(entry_count + 1) * sizeof(int32_t))
        starts_copy = <int64_t*>malloc(<size_t>(entry_count + 1) * sizeof(int64_t))
        if epochs_copy == NULL or starts_copy == NULL:
            free(epochs_copy)
            free(starts_copy)
            raise MemoryError()
        if entry_count:
            memcpy(epochs_copy, self.epochs, <size_t>entry_count * sizeof(int32_t))
            memcpy(starts_copy, self.start_offsets, <size_t>entry_count * sizeof(int64_t))
        with nogil:
            find_each(
                epochs_copy, starts_copy, entry_count, &asked_view[0], count,
                log_end_offset, &found_view[0], &ends_view[0],
            )
        free(epochs_copy)
        free(starts_copy)
        return found, ends

    def epoch_for_offset(self, int64_t offset):
        """Epoch that wrote `offset`: that of the last entry with start <= `offset`, -1 if none."""
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.entry_count
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) >> 1
            if self.start_offsets[middle] <= offset:
                low = middle + 1
            else:
                high = middle
        return self.epochs[low - 1] if low else UNKNOWN

    def truncate_from_end(self, int64_t end_offset):
        """Drop entries with start >= `end_offset`; True if any went. Negative: nothing happens."""
        cdef Py_ssize_t kept = self.entry_count
        if end_offset < 0:
            return False
        while kept and self.start_offsets[kept - 1] >= end_offset:
            kept -= 1
        changed = kept != self.entry_count
        self.entry_count = kept
        if changed:
            self.text = None
        return changed

    def truncate_from_start(self, int64_t start_offset):
        """Drop entries before `start_offset`, the one that covers it then starts there.

        True if the cache changed.
        """
        cdef Py_ssize_t dropped = 0
        while dropped < self.entry_count and self.start_offsets[dropped] <= start_offset:
            dropped += 1
        if dropped == 0 or (dropped == 1 and self.start_offsets[0] == start_offset):
            return False
        dropped -= 1
        self.text = None
        self.entry_count -= dropped
        memmove(
            self.epochs, self.epochs + dropped, <size_t>self.entry_count * sizeof(int32_t)
        )
        memmove(
            self.start_offsets,
            self.start_offsets + dropped,
            <size_t>self.entry_count * sizeof(int64_t),
        )
        self.start_offsets[0] = start_offset
        return True

    def clear(self):
        """Forget every entry."""
        self.entry_count = 0
        self.text = None

    cdef LeaderEpochCache copy(self):
        cdef LeaderEpochCache copied = LeaderEpochCache()
        copied.reserve(self.entry_count)
        copied.restore(self)
        return copied

    cdef void restore(self, LeaderEpochCache before) noexcept:
        # There is room: an array never shrinks.
        self.entry_count = before.entry_count
        self.text = before.text
        if self.entry_count:
            memcpy(self.epochs, before.epochs, <size_t>self.entry_count * sizeof(int32_t))
            memcpy(
                self.start_offsets, before.start_offsets,
                <size_t>self.entry_count * sizeof(int64_t),
            )

    def checkpoint_text(self):
        """What `leader-epoch-checkpoint` is to hold; the same object until an entry changes."""
        cdef char* text
        cdef char* at
        cdef Py_ssize_t place
        if self.text is None:
            text = <char*>malloc(<size_t>(self.entry_count + 2) * ENTRY_CHARACTERS_MAX)
            if text == NULL:
                raise MemoryError()
            at = put_number(text, CHECKPOINT_VERSION, LINE_FEED)
            at = put_number(at, self.entry_count, LINE_FEED)
            for place in range(self.entry_count):
                at = put_number(at, self.epochs[place], SPACE)
                at = put_number(at, self.start_offsets[place], LINE_FEED)
            try:
                self.text = text[:at - text]
            finally:
                free(text)
        return self.text

    @property
    def latest_epoch(self):
        """The largest epoch, -1 if there is none."""
        return self.latest()

    def entries(self):
        """All (epoch, start_offset), ascending."""
        cdef Py_ssize_t place
        return [
            (self.epochs[place], self.start_offsets[place]) for place in range(self.entry_count)
        ]
