# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""The segments of a log in the order of their offsets: a list that never changes.

Readers take it without a lock and keep what they took; a writer puts another in its place. That one
shares all but the last few with it: pieces of CHUNK segments, of which only one is made anew. So a
roll, a cut and a look-up cost the same however many segments there are.
"""

from replog._native.log_segment cimport LogSegment

cdef enum:
    CHUNK = 256


cdef SegmentList list_of(tuple chunks, Py_ssize_t skipped, Py_ssize_t count):
    cdef SegmentList made = SegmentList.__new__(SegmentList)
    made.chunks = chunks
    made.skipped = skipped
    made.count = count
    return made


cdef class SegmentList:
    """See the module."""

    def __cinit__(self, segments=()):
        cdef tuple held = tuple(segments)
        self.count = len(held)
        self.chunks = tuple([
            held[start:start + CHUNK] for start in range(0, len(held), CHUNK)
        ])

    cdef LogSegment at(self, Py_ssize_t place):
        cdef Py_ssize_t behind = self.skipped + place
        if not 0 <= place < self.count:
            raise IndexError(f"expected a place in [0, {self.count}), found {place}")
        return <LogSegment>(<tuple>self.chunks[behind // CHUNK])[behind % CHUNK]

    cdef int64_t base(self, Py_ssize_t place) except? -1:
        return self.at(place).base_offset

    cdef LogSegment last(self):
        return self.at(self.count - 1)

    cdef Py_ssize_t floor(self, int64_t offset) except -1:
        cdef Py_ssize_t low = 0, high = self.count, middle
        while low < high:
            middle = (low + high) // 2
            if self.at(middle).base_offset <= offset:
                low = middle + 1
            else:
                high = middle
        return low - 1 if low else 0

    cdef SegmentList with_last(self, LogSegment segment):
        cdef Py_ssize_t full = (self.skipped + self.count) // CHUNK
        cdef tuple begun = self.chunks[full] if full < len(self.chunks) else ()
        return list_of(
            self.chunks[:full] + (begun + (segment,),), self.skipped, self.count + 1
        )

    cdef SegmentList first(self, Py_ssize_t count):
        cdef Py_ssize_t end = self.skipped + count
        cdef tuple kept = self.chunks[:end // CHUNK]
        if end % CHUNK:
            kept += (self.chunks[end // CHUNK][:end % CHUNK],)
        return list_of(kept, self.skipped, count)

    cdef SegmentList behind(self, Py_ssize_t count):
        cdef Py_ssize_t skipped = self.skipped + count
        cdef Py_ssize_t chunk = skipped // CHUNK
        cdef tuple kept = self.chunks[chunk:]
        skipped %= CHUNK
        if skipped and kept:
            # What is gone is not held: its files are given back with the last reader.
            kept = ((None,) * skipped + kept[0][skipped:],) + kept[1:]
        return list_of(kept, skipped, self.count - count)

    def __len__(self):
        return self.count

    def __iter__(self):
        return iter(self[:])

    def __getitem__(self, place):
        """A segment, also counted from the end, or a tuple of those of a slice."""
        if isinstance(place, slice):
            return tuple([self.at(at) for at in range(*place.indices(self.count))])
        return self.at(place + self.count if place < 0 else place)
