"""The second opinion must itself be trusted: each way in which files can be wrong is found."""

from __future__ import annotations

import struct
import zlib

import pytest

from replog.cli.raw_batches import AcknowledgedBatch, compare_replicas, walk
from replog.errors import CorruptBatchError, ReplicationError


def batch(base_offset: int, count: int = 1, payload: bytes = b"payload") -> bytes:
    produced = struct.pack(">bIhi", 2, 7, 0, count - 1) + payload
    return struct.pack(">qii", base_offset, len(produced) + 4, 0) + produced


def acknowledged(content: bytes) -> list[AcknowledgedBatch]:
    return [
        AcknowledgedBatch(one.base_offset, one.last_offset, one.checksum) for one in walk(content)
    ]


@pytest.fixture
def replicas(tmp_path):
    def write(*contents: dict[str, bytes]) -> list[str]:
        directories = []
        for number, files in enumerate(contents):
            directory = tmp_path / f"replica-{number}"
            directory.mkdir()
            for name, content in files.items():
                (directory / name).write_bytes(content)
            directories.append(str(directory))
        return directories

    return write


FIRST, SECOND = "00000000000000000000.log", "00000000000000000003.log"


def test_a_batch_is_known_by_offsets_position_and_the_producers_part():
    content = batch(0, 3) + batch(3)
    first, second = walk(content, "here")
    assert (first.base_offset, first.last_offset, first.position) == (0, 2, 0)
    assert (second.base_offset, second.position) == (3, len(first.content))
    assert first.checksum == zlib.crc32(content[16 : len(first.content)])


def test_a_partial_batch_at_the_end_is_left_out():
    content = batch(0, 3) + batch(3)
    for length in range(len(batch(0, 3)), len(content)):
        assert len(list(walk(content[:length]))) == 1


@pytest.mark.parametrize(("place", "byte"), [(16, 1), (8, 255), (11, 3), (23, 255)])
def test_a_header_that_cannot_be_is_an_error(place, byte):
    content = bytearray(batch(0))
    content[place] = byte
    with pytest.raises(CorruptBatchError):
        list(walk(bytes(content)))


def test_equal_replicas_are_counted_though_their_segments_are_cut_elsewhere(replicas):
    content = batch(0, 3) + batch(3, 2)
    halves = {FIRST: batch(0, 3), SECOND: batch(3, 2), "00000000000000000003.index": b"?"}
    directories = replicas({FIRST: content}, halves, {FIRST: content + batch(5)})
    comparison = compare_replicas(directories, 5, acknowledged(content))
    assert comparison == (2, len(content), 5, 5)


def test_bytes_above_the_high_watermark_are_not_compared(replicas):
    content = batch(0, 3)
    directories = replicas({FIRST: content + batch(3)}, {FIRST: content + batch(3, 1, b"other")})
    assert compare_replicas(directories, 3, acknowledged(content)).records == 3


@pytest.mark.parametrize("place", [0, 12, 20, -1])
def test_one_flipped_byte_is_found(replicas, place):
    content = batch(0, 3) + batch(3)
    flipped = bytearray(content)
    flipped[place] ^= 1
    directories = replicas({FIRST: content}, {FIRST: content}, {FIRST: bytes(flipped)})
    with pytest.raises(ReplicationError):
        compare_replicas(directories, 4, acknowledged(content))


def test_a_replica_that_lacks_the_end_is_found(replicas):
    content = batch(0, 3)
    directories = replicas({FIRST: content + batch(3)}, {FIRST: content, SECOND: b""})
    with pytest.raises(ReplicationError, match="offset 3"):
        compare_replicas(directories, 4, [])


def test_a_hole_is_found_though_all_replicas_have_it(replicas):
    content = batch(0) + batch(2)
    with pytest.raises(ReplicationError, match="expected offset 1"):
        compare_replicas(replicas({FIRST: content}, {FIRST: content}), 3, [])


def test_acknowledged_bytes_that_are_missing_or_other_are_found(replicas):
    content = batch(0) + batch(1)
    directories = replicas({FIRST: content}, {FIRST: content})
    for wrong in (batch(1, 1, b"another"), batch(0, 2), batch(2)):
        with pytest.raises(ReplicationError, match="missing or changed"):
            compare_replicas(directories, 2, acknowledged(wrong))
