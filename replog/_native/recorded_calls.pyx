# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""A second table of system calls, for tests: it counts, fails, shortens, holds and records.

install() puts it in place of the real one for the whole process, uninstall() takes it away again.
Only calls that succeeded and that change the disk or make a change durable are recorded.
"""

from typing import NamedTuple

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memset

from replog._native cimport file_system
from replog._native.file_system cimport replog_system_calls

from replog.errors import UsageError

cdef extern from "c/recorded_calls.h" nogil:
    enum: CALL_KINDS
    enum: FAULTS_MAX
    enum: STRIKES_KEPT_MAX
    ctypedef struct replog_recorded_call:
        int kind
        int fd
        int flags
        int64_t position
        size_t length
        uint8_t* bytes
        char* path
        char* to
    ctypedef struct replog_fault:
        int kind
        int64_t nth
        int64_t times
        int cause
        int hold
        size_t bytes_max
        char path[256]
        int64_t seen
    ctypedef struct replog_strike:
        int kind
        int cause
        char path[256]
    const replog_system_calls replog_recording_system_calls
    void replog_recording_start(const replog_system_calls* below)
    int64_t replog_call_count(int kind)
    int replog_add_fault(const replog_fault* fault)
    void replog_clear_faults()
    int replog_wait_until_held(int64_t count, double seconds)
    size_t replog_strike_count()
    const replog_strike* replog_kept_strike(size_t number)
    void replog_keep_calls(int keep)
    int replog_add_mark(const char* text)
    size_t replog_kept_count()
    const replog_recorded_call* replog_kept_call(size_t number)
    void replog_drop_calls()

# In the order of enum replog_call_kind.
KINDS = (
    "open", "close", "pwritev", "pread", "mmap", "munmap", "fstat", "fdatasync", "ftruncate",
    "mkdir", "rename", "unlink", "rmdir", "flock", "fsync_dir", "mark",
)

cdef const replog_system_calls* replaced = NULL


class RecordedCall(NamedTuple):
    """One recorded call; `position` is the size where the kind is ftruncate."""

    kind: str
    path: str
    to: str
    fd: int
    flags: int
    position: int
    content: bytes


class Strike(NamedTuple):
    """A call that a fault has hit; `cause` is its errno, 0 where it was shortened."""

    kind: str
    cause: int
    path: str


def install() -> None:
    """Put the recording table in use, with no faults and all counts 0."""
    global replaced
    if replaced != NULL:
        raise UsageError("expected the real table of system calls; the recording one is in use.")
    replaced = file_system.system_calls
    replog_recording_start(replaced)
    file_system.system_calls = &replog_recording_system_calls


def uninstall() -> None:
    """Put the former table back; recorded calls stay readable. A second call does nothing."""
    global replaced
    if replaced != NULL:
        file_system.system_calls = replaced
        replaced = NULL
        replog_clear_faults()
        replog_keep_calls(0)


cdef int number_of(str kind) except -1:
    if kind not in KINDS:
        raise UsageError(f"expected a kind of call out of {KINDS}; found {kind!r}.")
    return KINDS.index(kind)


def call_count(kind: str) -> int:
    """Calls of the kind since install()."""
    return replog_call_count(number_of(kind))


def fail(kind: str, cause: int, *, nth: int = 1, times: int = 1 << 60, path: str = "") -> None:
    """Let calls of `kind` on paths that contain `path` fail with errno `cause`.

    From the `nth` such call from now on (the next is 1), `times` of them.
    """
    add_fault(kind, cause, 0, False, nth, times, path)


def shorten(
    kind: str, bytes_max: int, *, nth: int = 1, times: int = 1 << 60, path: str = ""
) -> None:
    """Let pwritev or pread take at most `bytes_max` bytes; which calls: as fail()."""
    add_fault(kind, 0, bytes_max, False, nth, times, path)


def hold(kind: str, *, nth: int = 1, times: int = 1 << 60, path: str = "") -> None:
    """Let such calls wait, before they do anything, until clear_faults(); which: as fail().

    Two threads then overlap where a test wants them to, whatever the scheduler does. Only for calls
    that are made without the GIL: pwritev, fdatasync and ftruncate of a MappedFile, fsync_dir.
    """
    add_fault(kind, 0, 0, True, nth, times, path)


def wait_until_held(count: int = 1, seconds: float = 10.0) -> None:
    """Return once `count` calls are held. Raises UsageError if that takes longer."""
    cdef int64_t wanted = count
    cdef double patience = seconds
    cdef int outcome
    with nogil:
        outcome = replog_wait_until_held(wanted, patience)
    if outcome != 0:
        raise UsageError(f"expected {count} calls to be held within {seconds} s; found fewer.")


cdef int add_fault(
    str kind, int cause, size_t bytes_max, bint hold, int64_t nth, int64_t times, str path
) except -1:
    cdef replog_fault fault
    cdef bytes encoded = path.encode()
    memset(&fault, 0, sizeof(fault))
    fault.kind = number_of(kind)
    fault.cause = cause
    fault.hold = hold
    fault.bytes_max = bytes_max
    fault.nth = nth
    fault.times = times
    if len(encoded) >= <Py_ssize_t>sizeof(fault.path):
        raise UsageError(f"expected less than {sizeof(fault.path)} bytes of path; found {path!r}.")
    memcpy(fault.path, <const char*>encoded, len(encoded))
    if replog_add_fault(&fault) != 0:
        raise UsageError(f"expected at most {FAULTS_MAX} faults; call clear_faults() first.")
    return 0


def clear_faults() -> None:
    """Let every call succeed again."""
    replog_clear_faults()


def strikes() -> list:
    """The calls that faults have hit since clear_faults(), the first few of them, as Strike."""
    cdef size_t number
    cdef const replog_strike* struck
    found = []
    for number in range(min(replog_strike_count(), <size_t>STRIKES_KEPT_MAX)):
        struck = replog_kept_strike(number)
        found.append(Strike(KINDS[struck.kind], struck.cause, (<bytes>struck.path).decode()))
    return found


def record() -> None:
    """Forget what was recorded, and record from now on."""
    replog_drop_calls()
    replog_keep_calls(1)


def pause() -> None:
    """Record nothing more until record()."""
    replog_keep_calls(0)


def mark(text: str) -> None:
    """Put a note between the recorded calls, as a call of kind "mark" whose path is `text`."""
    cdef bytes encoded = text.encode()
    replog_add_mark(encoded)


def recorded() -> list:
    """Every call recorded so far, in order, as RecordedCall."""
    cdef size_t number
    cdef const replog_recorded_call* call
    calls = []
    for number in range(replog_kept_count()):
        call = replog_kept_call(number)
        calls.append(RecordedCall(
            KINDS[call.kind],
            (<bytes>call.path).decode() if call.path != NULL else "",
            (<bytes>call.to).decode() if call.to != NULL else "",
            call.fd,
            call.flags,
            call.position,
            (<const char*>call.bytes)[:call.length] if call.bytes != NULL else b"",
        ))
    return calls
