# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=True, auto_pickle=False, autotestdict=False
"""Which segments a directory holds, once what interrupted work has left there is put away.

Left are files under passing names (`.deleted`, `.cleaned`, `.swap`), side files without a data
file, empty data files of rolls that failed, and segments below the log start that retention had
begun to take. None of them is a reason to cut what lies behind.
"""

import os

from libc.stdint cimport int64_t

from replog._native.log_segment cimport LogSegment
from replog._native.log_state cimport LogState
from replog._native.record_batch cimport BatchHeader

from replog.errors import CorruptBatchError

from replog._native import mapped_file
from replog._native.record_batch import scan
from replog._native.segment_files import SEGMENT_SUFFIXES

OFFSET_MAX = 2**63 - 1


def find_segments(LogState state, report, bint dense, int64_t now_ms):
    """The segments by their names, after leftovers of interrupted work are finished or deleted."""
    cdef int64_t base_offset
    cdef LogSegment segment
    names = set(mapped_file.list_dir(state.path))
    finish_swaps(state, names, report)
    segments = []
    for name in sorted(names):
        stem, _, suffix = name.partition(".")
        if len(stem) != 20 or not stem.isdecimal() or int(stem) > OFFSET_MAX:
            continue
        if suffix == "log":
            base_offset = int(stem)
            segment = LogSegment(
                state.path, base_offset,
                index_interval_bytes=state.config.index_interval_bytes,
                index_bytes_max=state.config.segment_index_bytes,
                map_bytes=state.config.segment_bytes, dense=dense, created_ms=now_ms,
                missing_index=f"{stem}.index" not in names or f"{stem}.timeindex" not in names,
            )
            segment.guard = state.guard
            segments.append(segment)
        elif suffix in ("index", "timeindex", "txnindex") and f"{stem}.log" not in names:
            mapped_file.remove(f"{state.path}/{name}")
            report.removed.append(name)
    return drop_empty(segments, report)


def finish_swaps(LogState state, names, report):
    """Install `.swap` files, as Kafka does: a replacement that was whole before the crash wins.

    One behind a `.cleaned` file was not: that is renamed last. All else under a passing name goes.
    """
    first_unfinished = min(
        (name[:20] for name in names if name.endswith(".cleaned")), default=chr(0x7F)
    )
    for name in sorted(names):
        if name.endswith((".deleted", ".cleaned", ".tmp")) or (
            name.endswith(".swap") and name[:20] >= first_unfinished
        ):
            mapped_file.remove(f"{state.path}/{name}")
            report.removed.append(name)
            names.discard(name)
    swaps = sorted(name for name in names if name.endswith(".swap"))
    logs = [name for name in swaps if name.endswith(".log.swap")]
    for name in logs:
        base_offset = int(name[:20])
        end_offset = swapped_end(f"{state.path}/{name}", base_offset)
        for other in sorted(names):
            if other.endswith(".swap") or not other[:20].isdecimal():
                continue
            if base_offset <= int(other[:20]) < end_offset and other[20:21] == ".":
                mapped_file.remove(f"{state.path}/{other}")
                names.discard(other)
                report.removed.append(other)
    for name in swaps:
        final = name.removesuffix(".swap")
        mapped_file.rename(f"{state.path}/{name}", f"{state.path}/{final}")
        names.discard(name)
        names.add(final)
    if swaps:
        mapped_file.fsync_dir(state.path)


def swapped_end(str path, int64_t base_offset):
    """Exclusive end offset of the batches in a `.swap` file."""
    scanned = scan(mapped_file.read_file(path), check_crc=False)
    return max((int(last) for last in scanned.headers["last_offset"]), default=base_offset) + 1


def drop_empty(list segments, report):
    """Remove the empty data files that the log has passed: a roll failed, and it went on before."""
    cdef LogSegment segment, before = None
    kept = []
    for segment in segments:
        if (
            before is not None and os.stat(segment.path).st_size == 0
            and reaches(before, segment.base_offset)
        ):
            remove_files(segment, report)
        else:
            before = segment
            kept.append(segment)
    return kept


def drop_below_start(LogState state, report, int64_t synced_end):
    """Remove what retention has begun to take, where it is not whole up to the log start.

    Its renames reach the disk in any order, and what it had not synced may be torn. From
    synced_end on the batches are checked.
    """
    cdef Py_ssize_t place = state.floor_place(state.log_start_offset)
    cdef Py_ssize_t number
    cdef LogSegment segment
    for number in range(place - 1, -1, -1):
        segment = state.segments.at(number)
        if not goes_up_to(segment, state.segments.base(number + 1), synced_end):
            for segment in state.segments[:number + 1]:
                remove_files(segment, report)
            state.segments = state.segments.behind(number + 1)
            return


def goes_up_to(LogSegment segment, int64_t end_offset, int64_t synced_end):
    """Whether nothing is missing below end_offset, where the next segment begins."""
    if end_offset <= synced_end:
        return not segment.dense or reaches(segment, end_offset - 1)
    scanned = scan(segment.view(0, segment.file.size_bytes)) if segment.size_bytes else None
    if scanned is None or scanned.problem is not None or not len(scanned.headers):
        return scanned is None and not segment.dense
    return not segment.dense or scanned.headers["last_offset"].item(-1) + 1 == end_offset


def reaches(LogSegment segment, int64_t offset):
    """Whether a batch of the segment, of which the bytes before it are whole, holds `offset`."""
    cdef BatchHeader header
    try:
        return bool(segment.size_bytes) and segment.find(offset, &header)
    except CorruptBatchError:
        return False


def remove_files(LogSegment segment, report):
    """Remove the data file of a segment first: side files without one go at the next open."""
    for suffix in SEGMENT_SUFFIXES:
        path = segment.prefix + suffix
        if os.path.exists(path):
            mapped_file.remove(path)
            report.removed.append(os.path.basename(path))
