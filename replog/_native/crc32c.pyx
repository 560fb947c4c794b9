# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""CRC-32C (Castagnoli), the checksum of every record batch.

Three ways give the same number: AVX-512 carry-less multiplication, the SSE4.2 crc32 instruction
over three streams, and portable tables. The best one that the processor has is chosen when this
module is first imported. Check value: the checksum of b"123456789" is 0xE3069283.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t

from replog.errors import UsageError

cdef extern from "c/crc32c.h" nogil:
    ctypedef enum replog_crc32c_way:
        REPLOG_CRC32C_PORTABLE
        REPLOG_CRC32C_SSE42
        REPLOG_CRC32C_VPCLMULQDQ
    void replog_crc32c_start()
    uint32_t replog_crc32c(uint32_t crc, const uint8_t* bytes, size_t length)
    int replog_crc32c_has(replog_crc32c_way way)
    void replog_crc32c_use(replog_crc32c_way way)
    replog_crc32c_way replog_crc32c_used()

cdef enum:
    RELEASE_GIL_FROM = 8192   # bytes; below it the hand-over costs more than the checksum

cdef dict WAYS = {
    "portable": REPLOG_CRC32C_PORTABLE,
    "sse42": REPLOG_CRC32C_SSE42,
    "vpclmulqdq": REPLOG_CRC32C_VPCLMULQDQ,
}

replog_crc32c_start()


cdef uint32_t crc32c(uint32_t crc, const uint8_t* bytes, size_t length) noexcept nogil:
    return replog_crc32c(crc, bytes, length)


def checksum(buffer, crc: int = 0) -> int:
    """CRC-32C of a C-contiguous buffer, continuing `crc` (0 to start).

    checksum(a + b) == checksum(b, checksum(a)).
    """
    cdef Py_buffer view
    cdef uint32_t number = <uint32_t>(crc & 0xFFFFFFFF)
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    if view.len < RELEASE_GIL_FROM:
        number = replog_crc32c(number, <const uint8_t*>view.buf, <size_t>view.len)
    else:
        with nogil:
            number = replog_crc32c(number, <const uint8_t*>view.buf, <size_t>view.len)
    PyBuffer_Release(&view)
    return number


def implementation() -> str:
    """The way in use: "vpclmulqdq", "sse42" or "portable"."""
    cdef int used = <int>replog_crc32c_used()
    return next(name for name, way in WAYS.items() if way == used)


def implementations() -> tuple[str, ...]:
    """The ways that this processor has, slowest first."""
    return tuple(
        name for name, way in WAYS.items() if replog_crc32c_has(<replog_crc32c_way><int>way)
    )


def use(name: str) -> None:
    """Compute by the named way from now on, in the whole process. For tests and measurements.

    UsageError if there is no such way or this processor lacks it.
    """
    if name not in implementations():
        raise UsageError(
            f"expected one of {', '.join(implementations())} as the way to compute CRC-32C on this "
            f"processor, found {name!r}"
        )
    replog_crc32c_use(<replog_crc32c_way><int>WAYS[name])
