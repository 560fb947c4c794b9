# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Compressed payloads of record batches: gzip, snappy, lz4, zstd, framed as Kafka's clients do.

    1 gzip    RFC 1952 members
    2 snappy  xerial stream: 82 S N A P P Y 00, version, compatible version, then (length,
              raw block)*; some clients write one raw block with no frame, which is read too
    3 lz4     04 22 4d 18 60 40 82, independent blocks of 64 KiB as (length, block)*, 00 00 00 00
    4 zstd    plain frames

The codecs themselves are pyarrow's, the standard library's and zstandard's, called once per batch
or block without the GIL. Making a context of zstd's costs ten times what a small batch does: each
thread keeps its own. What is read is not trusted: no size that the payload declares is allocated
before it was held against the cap and against the most that its bytes can expand to, and output
stops at the cap.
"""

import threading
import zlib

import pyarrow as pa
import zstandard

from libc.stdint cimport int64_t, uint8_t, uint32_t

from replog.errors import DecompressionError, UnknownCodecError, UsageError

cdef enum:
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    GZIP_WBITS = 31            # zlib's name for: 32 KiB window, gzip header and trailer
    XERIAL_BLOCK_BYTES = 32768
    XERIAL_HEADER_BYTES = 16
    SNAPPY_EXPANSION_MAX = 32  # a three-byte copy makes 64 bytes: 21.3 at most
    LZ4_BLOCK_BYTES = 65536
    FIRST_READ_BYTES = 65536
    READ_BYTES_MAX = 1 << 24

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_HEADER = LZ4_MAGIC + b"\x60\x40\x82"
LZ4_END_MARK = b"\x00\x00\x00\x00"

CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
cdef dict LEVELS = {GZIP: (-1, 9, -1), LZ4: (1, 17, 9), ZSTD: (-131072, 22, 3)}
cdef int64_t CAP_MAX = 0x1000000000000000   # so that nothing added to it wraps
cdef int LZ4_LEVEL_MAX = 12    # of the library; Java's 13 to 17 mean the same search

cdef object kept_codecs = threading.local()


cdef object codec_of(str name, object level):
    # Making a codec object costs more than compressing a small batch; they are kept per thread.
    cdef dict kept = kept_codecs.__dict__
    key = (name, level)
    codec = kept.get(key)
    if codec is None:
        codec = kept[key] = pa.Codec(name, compression_level=level)
    return codec


cdef object zstd_compressor(int level):
    cdef dict kept = kept_codecs.__dict__
    key = ("zstd", level)
    compressor = kept.get(key)
    if compressor is None:
        compressor = kept[key] = zstandard.ZstdCompressor(level=level)
    return compressor


cdef object zstd_decompressor():
    cdef dict kept = kept_codecs.__dict__
    decompressor = kept.get("zstd")
    if decompressor is None:
        decompressor = kept["zstd"] = zstandard.ZstdDecompressor()
    return decompressor


cdef str name_of(int codec):
    if codec < 0 or codec >= len(CODEC_NAMES):
        raise UnknownCodecError(
            "expected a compression codec from 0 to 4 (none, gzip, snappy, lz4, zstd), found "
            f"{codec}; "
            f"the batch is damaged or of a format that replog does not know",
            codec=codec,
        )
    return CODEC_NAMES[codec]


cdef object checked_level(int codec, object level):
    if level is None:
        return None
    name = name_of(codec)
    if codec not in LEVELS:
        raise UsageError(f"expected no compression level for {name}, found {level!r}")
    lowest, highest, _ = LEVELS[codec]
    if isinstance(level, bool) or not isinstance(level, int):
        raise UsageError(
            f"expected an integer as compression level, found {type(level).__name__}"
        )
    if level < lowest or level > highest or (codec == GZIP and level == 0):
        raise UsageError(
            f"expected a {name} level from {lowest} to "
            f"{highest}{', not 0' if codec == GZIP else ''}, "
            f"found {level}"
        )
    return min(level, LZ4_LEVEL_MAX) if codec == LZ4 else level


def compress(codec: int, payload, level: int | None = None):
    """`payload` in the framing of `codec` (0 to 4), as a bytes-like object.

    `level` None is Kafka's default: gzip -1 (of 1..9), zstd 3 (of -131072..22), and lz4's fast
    search, which Kafka calls 9 (of 1..17). UnknownCodecError for another codec, UsageError for
    another level.
    """
    cdef int number = codec
    name_of(number)
    level = checked_level(number, level)
    if number == 0:
        return payload
    if number == GZIP:
        stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, GZIP_WBITS)
        return stream.compress(payload) + stream.flush()
    if number == SNAPPY:
        return compress_snappy(memoryview(payload).cast("B"))
    if number == LZ4:
        return compress_lz4(memoryview(payload).cast("B"), level)
    return zstd_compressor(LEVELS[ZSTD][2] if level is None else level).compress(payload)


cdef object compress_snappy(object payload):
    cdef list parts = [XERIAL_HEADER]
    cdef int64_t start
    codec = codec_of("snappy", None)
    for start in range(0, len(payload), XERIAL_BLOCK_BYTES):
        block = codec.compress(payload[start:start + XERIAL_BLOCK_BYTES])
        parts.append(block.size.to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


cdef object compress_lz4(object payload, object level):
    # Java's reader knows independent blocks only, and pyarrow's frames link theirs: so the frame is
    # written here, and only the blocks are the library's.
    cdef list parts = [LZ4_HEADER]
    cdef int64_t start
    codec = codec_of("lz4_raw", level)
    for start in range(0, len(payload), LZ4_BLOCK_BYTES):
        piece = payload[start:start + LZ4_BLOCK_BYTES]
        block = codec.compress(piece)
        if block.size < len(piece):
            parts.append(block.size.to_bytes(4, "little"))
            parts.append(block)
        else:  # the high bit says: stored as it is
            parts.append((len(piece) | 0x80000000).to_bytes(4, "little"))
            parts.append(piece)
    parts.append(LZ4_END_MARK)
    return b"".join(parts)


def decompress(codec: int, payload, output_bytes_max: int):
    """The records of a payload in the framing of `codec` (0 to 4), as a bytes-like object.

    DecompressionError if the payload is cut or garbled, has bytes behind its end, or holds more
    than `output_bytes_max` bytes; UnknownCodecError for another codec. Memory stays in proportion
    to what really comes out, at most twice `output_bytes_max`, whatever sizes the payload declares.
    """
    cdef int number = codec
    cdef int64_t cap = min(output_bytes_max, CAP_MAX)
    name = name_of(number)
    if cap < 0:
        raise UsageError(f"expected a cap of at least 0 bytes on the output, found {cap}")
    view = memoryview(payload).cast("B")
    if number == 0:
        if len(view) > cap:
            raise too_large(name, cap)
        return payload
    if len(view) == 0:
        raise broken(name, "no bytes at all")
    if number == GZIP:
        return decompress_gzip(view, cap)
    if number == SNAPPY:
        return decompress_snappy(view, cap)
    if number == ZSTD:
        whole = decompress_whole_zstd(view, cap)
        if whole is not None:
            return whole
    return decompress_stream(name, view, cap)


cdef object broken(str name, object found):
    return DecompressionError(
        f"expected a whole {name} payload, found {found}; the batch is damaged, or its producer "
        "wrote "
        f"another format than its codec bits say",
        codec=CODEC_NAMES.index(name),
    )


cdef object too_large(str name, int64_t cap):
    return DecompressionError(
        f"expected a {name} payload of at most {cap} bytes of records, found more; raise the cap "
        "on "
        f"decompressed bytes if the batch is to be trusted",
        codec=CODEC_NAMES.index(name),
        output_bytes_max=cap,
    )


cdef object decompress_gzip(object view, int64_t cap):
    cdef list parts = []
    cdef int64_t room = cap
    while len(view) > 0:
        member = zlib.decompressobj(GZIP_WBITS)
        try:
            part = member.decompress(view, room + 1)
        except zlib.error as error:
            raise broken("gzip", f"a stream that zlib refuses ({error})") from error
        room -= len(part)
        if room < 0:
            raise too_large("gzip", cap)
        if not member.eof:
            raise broken("gzip", "one that ends inside a member")
        parts.append(part)
        view = member.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


cdef int64_t first_read(object view) except -1:
    # In proportion to the input, so that most batches take one read.
    return max(<int64_t>FIRST_READ_BYTES, min(8 * <int64_t>len(view), READ_BYTES_MAX))


cdef object decompress_whole_zstd(object view, int64_t cap):
    # In one call with a kept context, or None: what is large, garbled or more than one frame is for
    # the stream, which takes memory as output comes and says what is wrong. A frame that does not
    # tell its size, as Java's do not, is given room for the first read.
    cdef int64_t room = min(first_read(view), cap)
    try:
        # A Python number: a frame may declare up to 2**64 - 1.
        declared = zstandard.frame_content_size(view)
        # Of a frame that says it is empty the library reads no more than that.
        if declared > room or declared == 0:
            return None
        return zstd_decompressor().decompress(
            view, max_output_size=max(room, 1), allow_extra_data=False
        )
    except (zstandard.ZstdError, MemoryError):
        return None


cdef object decompress_stream(str name, object view, int64_t cap):
    # lz4 and zstd.
    cdef list parts = []
    # One more than allowed tells a full payload from one beyond the cap.
    cdef int64_t room = cap + 1
    cdef int64_t wanted = first_read(view)
    cdef int64_t got
    try:
        stream = pa.CompressedInputStream(pa.BufferReader(view), name)
        while room > 0:
            wanted = min(wanted, room)
            part = stream.read_buffer(wanted)
            got = part.size
            room -= got
            if got:
                parts.append(part)
            if got < wanted:
                break
            wanted = min(2 * wanted, READ_BYTES_MAX)
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        raise broken(name, f"one that the codec refuses ({error})") from error
    if room == 0:
        raise too_large(name, cap)
    return parts[0] if len(parts) == 1 else b"".join(parts)


cdef int64_t snappy_length(const uint8_t[::1] block, int64_t start, int64_t stop) except -2:
    # The uncompressed length that a raw snappy block opens with: a varint of at most 32 bits, or
    # -1.
    cdef uint32_t shift = 0
    cdef int64_t length = 0
    cdef int64_t at = start
    while at < stop and shift < 35:
        length |= <int64_t>(block[at] & 0x7F) << shift
        if block[at] < 0x80:
            return length if length <= 0xFFFFFFFF else -1
        shift += 7
        at += 1
    return -1


cdef object snappy_block(
    object codec, object view, int64_t start, int64_t stop, int64_t room, int64_t cap
):
    cdef int64_t length = snappy_length(view, start, stop)
    if length < 0:
        raise broken("snappy", f"a block at byte {start} with no valid length")
    if length > SNAPPY_EXPANSION_MAX * (stop - start):
        raise broken("snappy", f"a block of {stop - start} bytes that claims to hold {length}")
    if length > room:
        raise too_large("snappy", cap)
    try:
        return codec.decompress(view[start:stop], decompressed_size=length)
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        raise broken(
            "snappy", f"a block at byte {start} that the codec refuses ({error})"
        ) from error


cdef object decompress_snappy(object view, int64_t cap):
    cdef int64_t size = len(view)
    cdef int64_t at = XERIAL_HEADER_BYTES
    cdef int64_t room = cap
    cdef int64_t length
    cdef list parts = []
    codec = codec_of("snappy", None)
    if bytes(view[:8]) != XERIAL_MAGIC:
        return snappy_block(codec, view, 0, size, cap, cap)
    if size < XERIAL_HEADER_BYTES:
        raise broken("snappy", f"a frame header of {size} instead of {XERIAL_HEADER_BYTES} bytes")
    if int.from_bytes(view[12:16], "big") > 1:
        raise broken("snappy", "a frame that asks for a newer reader than version 1")
    while at < size:
        if bytes(view[at:at + 8]) == XERIAL_MAGIC:   # frames may follow each other
            if size - at < XERIAL_HEADER_BYTES:
                raise broken("snappy", f"a second frame header cut short at byte {at}")
            at += XERIAL_HEADER_BYTES
            continue
        if size - at < 4:
            raise broken("snappy", f"a block length cut short at byte {at}")
        length = int.from_bytes(view[at:at + 4], "big", signed=True)
        at += 4
        if length <= 0 or length > size - at:
            raise broken("snappy", f"a block length of {length} with {size - at} bytes left")
        part = snappy_block(codec, view, at, at + length, room, cap)
        room -= part.size
        parts.append(part)
        at += length
    return parts[0] if len(parts) == 1 else b"".join(parts)


def refused_by_java(codec: int, payload) -> str | None:
    """Why Kafka's Java clients would refuse this payload that replog reads, or None.

    They read LZ4 frames with independent blocks only, and no dictionaries. Looks at the frame
    header; whether the rest is whole is decompress()'s to say.
    """
    if codec != LZ4:
        return None
    header = bytes(memoryview(payload).cast("B")[:6])
    if len(header) < 6 or header[:4] != LZ4_MAGIC:
        return "expected an LZ4 frame, found other bytes"
    flags, block = header[4], header[5]
    if flags >> 6 != 1:
        return f"expected version 1 of the LZ4 frame, found {flags >> 6}"
    if flags & 0x03:
        return "expected an LZ4 frame with no dictionary and no reserved bits, found one with them"
    if not flags & 0x20:
        return "expected an LZ4 frame of independent blocks, found linked blocks"
    if block & 0x8F or not 4 <= block >> 4 <= 7:
        return f"expected an LZ4 block size code from 4 to 7, found the byte {block:#04x}"
    return None
