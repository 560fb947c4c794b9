# CRC-32C (Castagnoli) of bytes, by the fastest way that this processor has.

from libc.stdint cimport uint8_t, uint32_t

# Continues `crc` (0 to start) over bytes[0:length). Never fails.
cdef uint32_t crc32c(uint32_t crc, const uint8_t* bytes, size_t length) noexcept nogil
