# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Fields of Kafka's messages, read from any buffer and written to a growing one.

Bytes come from files and peers and are not trusted: each length is held against what is left before
anything is allocated, varints have at most five bytes, text must be UTF-8. Whatever does not fit is
a MalformedMessageError that says where. Numbers are big-endian.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport (
    INT32_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
)
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

import base64

from replog.errors import (
    MalformedMessageError,
    UnsupportedMessageVersionError,
    UsageError,
    invariant,
)

cdef enum:
    UUID_BYTES = 16
    INT16_LENGTH_MAX = 32767
    VARINT_BYTES_MAX = 5
    FIRST_ROOM = 256


cdef inline uint64_t load(const uint8_t* at, int width) noexcept nogil:
    """Big-endian and unsigned, `width` bytes."""
    cdef uint64_t number = 0
    cdef int place
    for place in range(width):
        number = (number << 8) | at[place]
    return number


cdef inline void store(uint8_t* at, uint64_t number, int width) noexcept nogil:
    cdef int place
    for place in range(width):
        at[width - 1 - place] = <uint8_t> (number >> (8 * place))


cdef class MessageReader:
    """Reads `buffer` from `position` on; holds it until it is collected."""

    def __cinit__(self, buffer, str message not None="a message", Py_ssize_t position=0):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True
        if not 0 <= position <= self.view.len:
            raise UsageError(
                f"expected a position from 0 to {self.view.len}, found {position}"
            )
        self.message = message
        self.start = <const uint8_t*> self.view.buf
        self.at = self.start + position
        self.end = self.start + self.view.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    cdef int fail(self, str expected) except -1:
        cdef Py_ssize_t position = self.at - self.start
        raise MalformedMessageError(
            f"expected {expected} in {self.message} at byte {position}, found {self.end - self.at} "
            f"bytes left of {self.end - self.start}; the bytes are cut, damaged or of another kind",
            position=position,
        )

    cdef const uint8_t* take(self, Py_ssize_t size) except NULL:
        cdef const uint8_t* taken = self.at
        if size > self.end - taken:
            self.fail(f"{size} bytes")
        self.at += size
        return taken

    cdef bint boolean(self) except -1:
        return self.take(1)[0] != 0

    cdef int8_t int8(self) except? -1:
        return <int8_t> self.take(1)[0]

    cdef int16_t int16(self) except? -1:
        return <int16_t> load(self.take(2), 2)

    cdef uint16_t uint16(self) except? 1:
        return <uint16_t> load(self.take(2), 2)

    cdef int32_t int32(self) except? -1:
        return <int32_t> load(self.take(4), 4)

    cdef uint32_t uint32(self) except? 1:
        return <uint32_t> load(self.take(4), 4)

    cdef int64_t int64(self) except? -1:
        return <int64_t> load(self.take(8), 8)

    cdef double float64(self) except? -1:
        cdef uint64_t bits = load(self.take(8), 8)
        cdef double number
        memcpy(&number, &bits, 8)
        return number

    cdef bytes uuid(self):
        return PyBytes_FromStringAndSize(<const char*> self.take(UUID_BYTES), UUID_BYTES)

    cdef uint32_t uvarint(self) except? 1:
        """Seven bits a byte, the lowest first; at most 2**32 - 1."""
        cdef uint64_t number = 0
        cdef uint8_t byte
        cdef int place
        if self.at < self.end and self.at[0] < 0x80:
            self.at += 1
            return (self.at - 1)[0]
        for place in range(VARINT_BYTES_MAX):
            byte = self.take(1)[0]
            number |= <uint64_t> (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                if number > <uint64_t> 0xFFFFFFFF:
                    self.fail("an unsigned varint of 32 bits")
                return <uint32_t> number
        self.fail("an unsigned varint of at most 5 bytes")

    cdef Py_ssize_t length(
        self, bint flexible, bint nullable, bint wide, str what
    ) except -2:
        """A length before what it counts, -1 for null; never more than 2**31 - 1."""
        cdef int64_t size
        if flexible:
            size = <int64_t> self.uvarint() - 1
        elif wide:
            size = self.int32()
        else:
            size = self.int16()
        if size == -1 and nullable:
            return -1
        if size < 0 or size > INT32_MAX:
            self.fail(f"the length of {what}, which is not {size},")
        return size

    cdef str string(self, bint flexible, bint nullable):
        cdef Py_ssize_t size = self.length(flexible, nullable, False, "a string")
        cdef const uint8_t* text
        if size < 0:
            return None
        text = self.take(size) if size else self.at
        try:
            return PyUnicode_DecodeUTF8(<const char*> text, size, NULL)
        except UnicodeDecodeError:
            self.at = text
            self.fail(f"a string of {size} bytes of UTF-8")

    cdef bytes byte_string(self, bint flexible, bint nullable):
        cdef Py_ssize_t size = self.length(flexible, nullable, True, "bytes")
        if size < 0:
            return None
        if size == 0:
            return b""
        return PyBytes_FromStringAndSize(<const char*> self.take(size), size)

    cdef object records(self, bint flexible, bint nullable):
        """A view of the buffer itself: it lives as long as the view does."""
        cdef Py_ssize_t size = self.length(flexible, nullable, True, "records")
        cdef Py_ssize_t position
        if size < 0:
            return None
        position = self.at - <const uint8_t*> self.view.buf
        if size:
            self.take(size)
        return memoryview(<object> self.view.obj).cast("B")[position:position + size]

    cdef Py_ssize_t array_length(
        self, bint flexible, bint nullable, Py_ssize_t bytes_min
    ) except -2:
        cdef Py_ssize_t count = self.length(flexible, nullable, True, "an array")
        if count > 0 and count > (self.end - self.at) // bytes_min:
            self.fail(f"{count} elements of at least {bytes_min} bytes")
        return count

    cdef bint present(self) except -1:
        """The byte before a nullable struct: -1 for null, 1 for one that follows."""
        cdef int8_t mark = self.int8()
        if mark != 1 and mark != -1:
            self.fail(f"1 or -1 before a struct, which is not {mark},")
        return mark == 1

    cdef const uint8_t* tag_end(self) except NULL:
        cdef Py_ssize_t size = self.uvarint()
        if size > self.end - self.at:
            self.fail(f"a tagged field of {size} bytes")
        return self.at + size

    cdef int leave_tag(self, const uint8_t* tag_end) except -1:
        if self.at != tag_end:
            self.fail("the end of a tagged field")
        return 0

    cdef int skip_tag(self, const uint8_t* tag_end) except -1:
        """A field of a later version than ours (KIP-482)."""
        self.at = tag_end
        return 0

    cdef int skip_tags(self) except -1:
        cdef uint32_t left = self.uvarint()
        while left:
            self.uvarint()
            self.skip_tag(self.tag_end())
            left -= 1
        return 0

    cdef int finish(self) except -1:
        if self.at != self.end:
            self.fail("the end")
        return 0


cdef class MessageWriter:
    """Gathers bytes."""

    def __dealloc__(self):
        free(self.start)

    cdef uint8_t* grow(self, Py_ssize_t size) except NULL:
        """Room for `size` more bytes, which count as written."""
        cdef uint8_t* moved
        cdef Py_ssize_t room
        if size > self.room - self.size:
            room = max(self.room * 2, self.size + size, <Py_ssize_t> FIRST_ROOM)
            moved = <uint8_t*> realloc(self.start, room)
            if moved == NULL:
                raise MemoryError(f"expected memory for a message of {room} bytes")
            self.start = moved
            self.room = room
        self.size += size
        return self.start + self.size - size

    cdef int boolean(self, bint value) except -1:
        self.grow(1)[0] = value
        return 0

    cdef int int8(self, int8_t value) except -1:
        self.grow(1)[0] = <uint8_t> value
        return 0

    cdef int int16(self, int16_t value) except -1:
        store(self.grow(2), <uint64_t> value, 2)
        return 0

    cdef int uint16(self, uint16_t value) except -1:
        store(self.grow(2), value, 2)
        return 0

    cdef int int32(self, int32_t value) except -1:
        store(self.grow(4), <uint64_t> value, 4)
        return 0

    cdef int uint32(self, uint32_t value) except -1:
        store(self.grow(4), value, 4)
        return 0

    cdef int int64(self, int64_t value) except -1:
        store(self.grow(8), <uint64_t> value, 8)
        return 0

    cdef int float64(self, double value) except -1:
        cdef uint64_t bits
        memcpy(&bits, &value, 8)
        store(self.grow(8), bits, 8)
        return 0

    cdef int uuid(self, bytes value) except -1:
        if value is None or PyBytes_GET_SIZE(value) != UUID_BYTES:
            raise UsageError(f"expected an id of 16 bytes, found {value!r}")
        memcpy(self.grow(UUID_BYTES), PyBytes_AS_STRING(value), UUID_BYTES)
        return 0

    cdef int uvarint(self, uint32_t value) except -1:
        while value >= 0x80:
            self.grow(1)[0] = <uint8_t> (value & 0x7F) | 0x80
            value >>= 7
        self.grow(1)[0] = <uint8_t> value
        return 0

    cdef int length(self, Py_ssize_t size, bint flexible, bint wide) except -1:
        """`size` as a length; -1 is null."""
        cdef Py_ssize_t largest = INT32_MAX if flexible or wide else INT16_LENGTH_MAX
        if size > largest:
            raise UsageError(f"expected at most {largest} elements or bytes, found {size}")
        if flexible:
            return self.uvarint(<uint32_t> (size + 1))
        return self.int32(<int32_t> size) if wide else self.int16(<int16_t> size)

    cdef int string(self, str value, bint flexible) except -1:
        cdef bytes text
        if value is None:
            return self.length(-1, flexible, False)
        try:
            text = value.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"expected text that UTF-8 can hold, found {value!r}") from error
        self.length(PyBytes_GET_SIZE(text), flexible, False)
        if PyBytes_GET_SIZE(text):
            memcpy(self.grow(PyBytes_GET_SIZE(text)), PyBytes_AS_STRING(text),
                   PyBytes_GET_SIZE(text))
        return 0

    cdef int byte_string(self, object value, bint flexible) except -1:
        """Bytes of any contiguous buffer."""
        cdef Py_buffer view
        if value is None:
            return self.length(-1, flexible, True)
        PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
        try:
            self.length(view.len, flexible, True)
            if view.len:
                memcpy(self.grow(view.len), view.buf, view.len)
        finally:
            PyBuffer_Release(&view)
        return 0

    cdef int array_length(self, tuple elements, bint flexible) except -1:
        return self.length(len(elements), flexible, True)

    cdef int null_array(self, bint flexible) except -1:
        return self.length(-1, flexible, True)

    cdef int tag(self, uint32_t number, MessageWriter content) except -1:
        self.uvarint(number)
        self.uvarint(<uint32_t> content.size)
        if content.size:
            memcpy(self.grow(content.size), content.start, content.size)
        return 0

    cdef bytes content(self):
        return PyBytes_FromStringAndSize(<const char*> self.start, self.size)


cdef class Message:
    """A message or a struct inside one: a value that never changes.

    Subclasses are generated. LOWEST_VERSION and HIGHEST_VERSION are those it can be written in.
    """

    API_KEY = None
    LOWEST_VERSION = 0
    HIGHEST_VERSION = 0

    cdef int read_fields(self, MessageReader reader, int version) except -1:
        invariant(False, "a generated read", kind=type(self).__name__)

    cdef int write_fields(self, MessageWriter writer, int version) except -1:
        invariant(False, "a generated write", kind=type(self).__name__)

    cdef dict fields_as_json(self, int version):
        return {}

    cdef tuple field_names(self):
        return ()

    cdef tuple field_values(self):
        return ()

    @classmethod
    def decode(cls, buffer, int version):
        """The message that `buffer` holds, all of it, in this version.

        Raises MalformedMessageError, or UnsupportedMessageVersionError.
        """
        cdef MessageReader reader = MessageReader(buffer, cls.__name__)
        cdef Message message = read_whole(cls, reader, version)
        reader.finish()
        return message

    def encode(self, int version):
        """The message as bytes of this version.

        Raises UnsupportedMessageVersionError where the version lacks a field that is not at its
        default, UsageError where a field cannot be written as its type.
        """
        cdef MessageWriter writer = MessageWriter()
        check_version(type(self), version)
        try:
            self.write_fields(writer, version)
        except (OverflowError, TypeError) as error:
            raise UsageError(
                f"expected fields of the schema's types in {self!r}: {error}"
            ) from error
        return writer.content()

    def as_json(self, int version):
        """The fields of this version as Kafka's JSON has them: ids as base64, no default tags."""
        check_version(type(self), version)
        return self.fields_as_json(version)

    def __eq__(self, other):
        if type(other) is not type(self):
            return NotImplemented
        return self.field_values() == (<Message> other).field_values()

    def __hash__(self):
        return hash(self.field_values())

    def __repr__(self):
        fields = ", ".join(
            f"{name}={value!r}"
            for name, value in zip(self.field_names(), self.field_values(), strict=True)
        )
        return f"{type(self).__name__}({fields})"


cdef Message read_whole(type kind, MessageReader reader, int version):
    cdef Message message
    check_version(kind, version)
    message = <Message> kind.__new__(kind)
    message.read_fields(reader, version)
    return message


cdef int check_version(type kind, int version) except -1:
    if not kind.LOWEST_VERSION <= version <= kind.HIGHEST_VERSION:
        raise UnsupportedMessageVersionError(
            f"expected {kind.__name__} in a version from {kind.LOWEST_VERSION} to "
            f"{kind.HIGHEST_VERSION}, found {version}; a later replog may know it",
            version=version,
        )
    return 0


cdef int refuse_field(Message message, str field, int version) except -1:
    raise UnsupportedMessageVersionError(
        f"expected {field} of {type(message).__name__} at its default, since version {version} "
        f"lacks it, found {message!r}; write a later version",
        version=version,
    )


cdef int refuse_null(Message message, str field) except -1:
    raise UsageError(
        f"expected a value for {field} of {type(message).__name__}, found None in {message!r}"
    )


cdef str uuid_text(bytes value):
    """Kafka's text of an id: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")
