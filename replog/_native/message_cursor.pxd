# Fields of Kafka's messages, read and written one after the other. Generated codecs are made of it.
#
# `flexible` asks for the compact forms of KIP-482: lengths as unsigned varints that count one more
# (0 is null), and tagged fields at the end. Without it lengths are big-endian int16 or int32 and -1
# is null. Numbers are big-endian in both.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t


cdef class MessageReader:
    # Invariant: start <= at <= end; every read checks what is left first.
    cdef Py_buffer view
    cdef bint held
    cdef str message               # what is being read, for errors
    cdef const uint8_t* start
    cdef const uint8_t* at
    cdef const uint8_t* end

    # `size` bytes from here, which are then behind us.
    cdef const uint8_t* take(self, Py_ssize_t size) except NULL

    cdef bint boolean(self) except -1
    cdef int8_t int8(self) except? -1
    cdef int16_t int16(self) except? -1
    cdef uint16_t uint16(self) except? 1
    cdef int32_t int32(self) except? -1
    cdef uint32_t uint32(self) except? 1
    cdef int64_t int64(self) except? -1
    cdef double float64(self) except? -1
    cdef bytes uuid(self)
    cdef uint32_t uvarint(self) except? 1
    cdef str string(self, bint flexible, bint nullable)
    cdef bytes byte_string(self, bint flexible, bint nullable)
    cdef object records(self, bint flexible, bint nullable)
    # How many elements follow, each of at least `bytes_min` bytes; -1 for null.
    cdef Py_ssize_t array_length(self, bint flexible, bint nullable, Py_ssize_t bytes_min) except -2
    # Whether a nullable struct is there.
    cdef bint present(self) except -1
    # Where the tagged field that begins here ends.
    cdef const uint8_t* tag_end(self) except NULL
    cdef int leave_tag(self, const uint8_t* tag_end) except -1
    cdef int skip_tag(self, const uint8_t* tag_end) except -1
    cdef int skip_tags(self) except -1
    cdef int finish(self) except -1
    cdef int fail(self, str expected) except -1
    cdef Py_ssize_t length(self, bint flexible, bint nullable, bint wide, str what) except -2


cdef class MessageWriter:
    # Invariant: 0 <= size <= room.
    cdef uint8_t* start
    cdef Py_ssize_t size
    cdef Py_ssize_t room

    cdef uint8_t* grow(self, Py_ssize_t size) except NULL
    cdef int boolean(self, bint value) except -1
    cdef int int8(self, int8_t value) except -1
    cdef int int16(self, int16_t value) except -1
    cdef int uint16(self, uint16_t value) except -1
    cdef int int32(self, int32_t value) except -1
    cdef int uint32(self, uint32_t value) except -1
    cdef int int64(self, int64_t value) except -1
    cdef int float64(self, double value) except -1
    cdef int uuid(self, bytes value) except -1
    cdef int uvarint(self, uint32_t value) except -1
    cdef int string(self, str value, bint flexible) except -1
    cdef int byte_string(self, object value, bint flexible) except -1
    cdef int array_length(self, tuple elements, bint flexible) except -1
    cdef int null_array(self, bint flexible) except -1
    cdef int tag(self, uint32_t number, MessageWriter content) except -1
    cdef int length(self, Py_ssize_t size, bint flexible, bint wide) except -1
    cdef bytes content(self)


# One message or a struct inside one: an immutable value. Generated classes fill in the rest.
cdef class Message:
    cdef int read_fields(self, MessageReader reader, int version) except -1
    cdef int write_fields(self, MessageWriter writer, int version) except -1
    cdef dict fields_as_json(self, int version)
    cdef tuple field_names(self)
    cdef tuple field_values(self)


cdef Message read_whole(type kind, MessageReader reader, int version)
cdef int check_version(type kind, int version) except -1
cdef int refuse_field(Message message, str field, int version) except -1
cdef int refuse_null(Message message, str field) except -1
cdef str uuid_text(bytes value)
