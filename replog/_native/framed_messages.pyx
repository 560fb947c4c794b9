# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Messages as the metadata log holds them: framed, each in a record's value.

A frame is its version 1, the API key, the message's version, all unsigned varints, and the message.
Those of a batch are read where they lie: nothing is made of a record but its message.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from replog._native.batch_cursor cimport CURSOR_BATCH, CURSOR_END, BatchCursor
from replog._native.message_cursor cimport (
    Message, MessageReader, MessageWriter, check_version,
)
from replog._native.record_batch cimport BATCH_BAD_COUNT, BATCH_BAD_RECORD
from replog._native.record_walk cimport RecordView, next_record

from replog.errors import MalformedMessageError, UnsupportedMessageVersionError, UsageError

cdef enum:
    FRAME_VERSION = 1
    VERSION_MAX = 32767

cdef str FRAMED = "a metadata record"
cdef int64_t INT64_MAX = 0x7FFFFFFFFFFFFFFF
cdef int64_t OUTPUT_BYTES_MAX = 64 * 1024 * 1024


cdef class FramedReader:
    """Reads values that lie somewhere in one buffer. `kinds` maps API keys to classes."""

    cdef MessageReader reader
    cdef dict kinds
    # Of the latest message: its class and the class's name, its API key and version.
    cdef type kind
    cdef str name
    cdef uint32_t api_key
    cdef uint32_t version

    def __cinit__(self, buffer, dict kinds not None):
        self.reader = MessageReader(buffer, FRAMED)
        self.kinds = kinds

    cdef Message read(self, const uint8_t* value, Py_ssize_t size):
        """The message at [value, value + size), which must hold nothing else."""
        cdef MessageReader reader = self.reader
        cdef uint32_t frame, api_key, version
        cdef Message message
        cdef type kind
        reader.message = FRAMED
        reader.start = reader.at = value
        reader.end = value + size
        frame = reader.uvarint()
        if frame != FRAME_VERSION:
            reader.fail(f"frame version {FRAME_VERSION}, which is not {frame},")
        api_key = reader.uvarint()
        version = reader.uvarint()
        if self.kind is None or api_key != self.api_key or version != self.version:
            self.choose(api_key, version)
        reader.message = self.name
        kind = self.kind
        message = <Message> kind.__new__(kind)
        message.read_fields(reader, <int> version)
        reader.finish()
        return message

    cdef int choose(self, uint32_t api_key, uint32_t version) except -1:
        """Records come in runs of one kind and version, which is looked up for the first alone."""
        kind = self.kinds.get(api_key)
        if kind is None:
            raise UnsupportedMessageVersionError(
                f"expected a metadata record of a known kind, found API key {api_key}; a later "
                f"replog may know it",
                version=version,
            )
        check_version(kind, <int> min(version, <uint32_t> VERSION_MAX))
        self.kind, self.name = kind, kind.__name__
        self.api_key, self.version = api_key, version
        return 0


def decode_framed(buffer, dict kinds not None):
    """(version, message) of a metadata record's value. `kinds` maps API keys to classes.

    Raises MalformedMessageError, or UnsupportedMessageVersionError.
    """
    cdef FramedReader framed = FramedReader(buffer, kinds)
    cdef MessageReader reader = framed.reader
    cdef Message message = framed.read(reader.start, reader.end - reader.start)
    return framed.version, message


def encode_framed(Message message not None, int version):
    """The value of a metadata record; inverse of decode_framed."""
    cdef MessageWriter head = MessageWriter()
    cdef bytes body = message.encode(version)
    if message.API_KEY is None:
        raise UsageError(f"expected a metadata record, found {message!r}")
    head.uvarint(FRAME_VERSION)
    head.uvarint(<uint32_t> message.API_KEY)
    head.uvarint(<uint32_t> version)
    return head.content() + body


def decode_batch(batch, dict kinds not None):
    """The messages in the records of one batch, in order; none for a control batch.

    `kinds` maps API keys to classes. The batch is held to its checksum and its counts first, each
    record as it is reached. Raises CorruptBatchError, DecompressionError, MalformedMessageError,
    UnsupportedMessageVersionError.
    """
    cdef BatchCursor cursor = BatchCursor(
        batch, 0, INT64_MAX, True, (), False, OUTPUT_BYTES_MAX, None, 0
    )
    cdef const uint8_t* at = NULL
    cdef const uint8_t* end
    cdef int64_t length = 0
    cdef int64_t previous = -1
    cdef int32_t _number
    cdef int outcome
    cdef RecordView record
    cdef FramedReader framed
    cdef list messages = []
    with nogil:
        outcome = cursor.advance()
    if outcome == CURSOR_END:
        return messages
    if outcome != CURSOR_BATCH:
        cursor.raise_damage(outcome)
    output = cursor.records(&at, &length)
    framed = FramedReader(batch if output is None else output, kinds)
    end = at + length
    memset(&record, 0, sizeof(record))
    for _number in range(cursor.header.record_count):
        at = next_record(at, end, &record)
        if at == NULL:
            cursor.raise_damage(BATCH_BAD_RECORD)
        if (
            record.offset_delta <= previous
            or record.offset_delta > cursor.header.last_offset - cursor.header.base_offset
        ):
            cursor.raise_damage(BATCH_BAD_COUNT)
        previous = record.offset_delta
        if record.value_length < 0:
            raise MalformedMessageError(
                f"expected a message in each metadata record, found null at offset "
                f"{cursor.header.base_offset + record.offset_delta}; the record is damaged"
            )
        messages.append(framed.read(record.value, record.value_length))
    if at != end:
        cursor.raise_damage(BATCH_BAD_COUNT)
    return messages
