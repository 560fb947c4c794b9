"""What a log takes and what it refuses; a refused append leaves everything as it was."""

from __future__ import annotations

import os
import shutil
import struct
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import replog
from replog import errors
from replog._native import compression, crc32c, record_decoder, record_encoder
from replog.storage.log_keeper import LogKeeper
from replog.storage.partition_log import PartitionLog

if TYPE_CHECKING:
    from pathlib import Path

NOW_MS = 1_700_000_000_000
CODECS = [1, 2, 3, 4]


def open_log(tmp_path: Path, **options: object) -> PartitionLog:
    return PartitionLog.open(
        tmp_path / "orders-0", replog.LogConfig(**options), now_ms=lambda: NOW_MS
    )


def encode(count: int = 3, **options: object) -> bytearray:
    values = [b"value %d" % number for number in range(count)]
    return bytearray(record_encoder.encode(values, now_ms=NOW_MS, **options))


def with_field(batch: bytearray, layout: str, place: int, number: int) -> bytearray:
    """The batch with one header field changed and its CRC made right again."""
    struct.pack_into(layout, batch, place, number)
    struct.pack_into(">I", batch, 17, crc32c.checksum(bytes(batch[21:])))
    return batch


def assert_refused(log: PartitionLog, batch: bytes | bytearray, kind: type[Exception]) -> None:
    before = (log.log_end_offset, log.size_bytes, log.epochs)
    with pytest.raises(kind) as raised:
        log.append_as_leader(batch, 0)
    assert "expected" in str(raised.value)
    assert "found" in str(raised.value) or "damaged" in str(raised.value)
    assert (log.log_end_offset, log.size_bytes, log.epochs) == before


def test_appended_values_are_read_back_with_their_offsets(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        first = log.append([b"a", None, b""], keys=[None, b"k", b""])
        second = log.append([b"d"], timestamps=NOW_MS + 5, headers=[[("h", b"1"), ("h", None)]])
        assert (first.base_offset, first.last_offset, second.base_offset) == (0, 2, 3)
        assert [(r.offset, r.key, r.value, r.headers) for r in log] == [
            (0, None, b"a", ()),
            (1, b"k", None, ()),
            (2, b"", b"", ()),
            (3, None, b"d", (("h", b"1"), ("h", None))),
        ]


@pytest.mark.parametrize("codec", CODECS)
def test_batches_above_64_kib_of_every_codec_survive_a_reopen(tmp_path: Path, codec: int) -> None:
    values = [(b"%d " % number) * 300 for number in range(500)]
    with open_log(tmp_path) as log:
        log.append(values, codec=replog.Codec(codec))
    with open_log(tmp_path) as log:
        table = log.to_arrow(columns=["value"])
    assert table.column("value").to_pylist() == values


def test_a_flipped_bit_anywhere_below_the_crc_is_refused(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append([b"kept"])
        for place in range(21, len(encode())):
            damaged = encode()
            damaged[place] ^= 4
            assert_refused(log, damaged, errors.CorruptBatchError)


@pytest.mark.parametrize(
    ("layout", "place", "number"),
    [
        (">i", 57, 2),  # fewer records counted than there are
        (">i", 57, 4),
        (">i", 57, 2**31 - 1),
        (">i", 23, 5),  # a last offset delta beyond the records
        (">i", 23, 1),
        (">h", 21, 0x20),  # a control batch
        (">h", 21, 0x08),  # timestamps set by a log
        (">q", 43, 7),  # a producer id without a sequence
    ],
)
def test_a_batch_with_a_right_crc_and_a_lie_is_refused(
    tmp_path: Path, layout: str, place: int, number: int
) -> None:
    with open_log(tmp_path) as log:
        assert_refused(log, with_field(encode(), layout, place, number), errors.InvalidRecordError)


def test_a_record_length_that_lies_is_refused(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        batch = encode()
        for place in range(61, len(batch)):
            lying = bytearray(batch)
            lying[place] = 0x7E
            struct.pack_into(">I", lying, 17, crc32c.checksum(bytes(lying[21:])))
            try:
                log.append_as_leader(lying, 0)
            except errors.ReplogError:
                continue
            # Inside a value any byte is legal; the record must then read back as it was sent.
            assert log.read(log.log_end_offset - 3).end_offset == log.log_end_offset


RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=80) | st.binary(min_size=8185, max_size=8195),
        st.none() | st.binary(max_size=200),
        st.integers(-9000, 9000) | st.just(-1 - NOW_MS),
    ),
    min_size=1,
    max_size=90,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RECORDS, st.data())
def test_append_takes_just_what_decodes(
    tmp_path: Path, records: list[tuple[bytes | None, bytes | None, int]], drawn: st.DataObject
) -> None:
    """One byte of the records replaced under a right CRC: both walks agree whether it is legal."""
    keys, values, deltas = (list(column) for column in zip(*records, strict=True))
    batch = bytearray(
        record_encoder.encode(values, keys, [NOW_MS + delta for delta in deltas], now_ms=NOW_MS)
    )
    place = drawn.draw(st.integers(61, len(batch) - 1))
    batch[place] = drawn.draw(st.integers(0, 255))
    struct.pack_into(">I", batch, 17, crc32c.checksum(bytes(batch[21:])))
    try:
        rows = record_decoder.decode_arrow(batch, columns=("offset", "timestamp", "key", "value"))
        offsets = rows.column("offset").to_pylist()
        expected = offsets == list(range(len(records)))
    except errors.ReplogError:
        expected = False
    name = f"orders-{uuid.uuid4().int % 2**31}"
    with PartitionLog.open(tmp_path / name, now_ms=lambda: NOW_MS) as log:
        try:
            log.append_as_leader(batch, 0)
        except errors.InvalidTimestampError:
            return
        except errors.ReplogError:
            assert not expected
            assert log.log_end_offset == 0
        else:
            assert expected
            assert log.log_end_offset == len(records)


@pytest.mark.parametrize("stamp_step", [0, 1, 200], ids="step={}".format)
@pytest.mark.parametrize("key", [None, b"", b"key"], ids="key={}".format)
@pytest.mark.parametrize("number", [40, 90], ids="record={}".format)
def test_among_records_of_one_shape_each_byte_is_looked_at(
    tmp_path: Path, number: int, key: bytes | None, stamp_step: int
) -> None:
    """Such records are walked by comparing them; the decoder, which is not, must agree."""
    count, values = 120, [b"abcd"] * 120
    stamps = [NOW_MS + place * stamp_step for place in range(count)]
    sound = bytes(record_encoder.encode(values, [key] * count, stamps, now_ms=NOW_MS))
    place = 61
    for _ in range(number):
        place += 1 + (sound[place] >> 1)
    with open_log(tmp_path) as log:
        for at in range(place, place + 1 + (sound[place] >> 1)):
            for byte in {sound[at] ^ flip for flip in (0, 1, 2, 4, 6, 0x40, 0x80, 0xFF)} | {
                0, 1, 0x7F,
            }:  # fmt: skip
                batch = bytearray(sound)
                batch[at] = byte
                struct.pack_into(">I", batch, 17, crc32c.checksum(bytes(batch[21:])))
                try:
                    rows = record_decoder.decode_arrow(batch, columns=("offset", "timestamp"))
                    taken = rows.column("offset").to_pylist() == list(range(count))
                except errors.ReplogError:
                    taken = False
                if not taken:
                    assert_refused(log, batch, errors.InvalidRecordError)
                    continue
                start = log.append_as_leader(batch, 0).base_offset
                stored = bytes(memoryview(log.read(start)))
                latest = struct.unpack_from(">q", stored, 35)[0]
                told = rows.column("timestamp").cast(pa.int64()).to_pylist()
                assert latest == max(told), (at, byte)


def test_an_offset_that_takes_a_byte_more_changes_the_shape_of_a_record(tmp_path: Path) -> None:
    """Record 64 is given the bytes of those before: its delta then takes in what was the key's."""
    sound = bytearray(record_encoder.encode([b"abcd"] * 64, [None] * 64, NOW_MS, now_ms=NOW_MS))
    record = sound[-11:]
    assert record[3] == 63 << 1
    record[3] = 64 << 1
    # Two more behind it, sound by themselves, as the last bytes of a batch are walked otherwise.
    batch = sound + record
    for number in (65, 66):
        batch += bytes([11 << 1, 0, 0, 0x80 | number << 1 & 0x7F, number >> 6, 1, 8]) + b"abcd\0"
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 23, 66)
    with open_log(tmp_path) as log:
        assert_refused(log, with_field(batch, ">i", 57, 67), errors.InvalidRecordError)


def test_unknown_codec_wrong_offsets_oversize_and_nothing_are_refused(tmp_path: Path) -> None:
    with open_log(tmp_path, max_message_bytes=2000) as log:
        assert_refused(log, with_field(encode(), ">h", 21, 5), errors.UnknownCodecError)
        shifted = encode()
        struct.pack_into(">q", shifted, 0, 17)
        assert_refused(log, shifted, errors.InvalidRecordError)
        assert_refused(log, encode(500), errors.RecordBatchTooLargeError)
        assert_refused(log, encode()[:-1], errors.CorruptBatchError)
        with pytest.raises(errors.UsageError):
            log.append_as_leader(b"", 0)
        with pytest.raises(errors.InvalidTimestampError):
            log.append([b"x"], timestamps=NOW_MS + 2**62)


@pytest.mark.parametrize("codec", CODECS)
def test_a_decompression_bomb_is_refused(tmp_path: Path, codec: int) -> None:
    bomb = encode(codec=codec)[:61] + bytes(compression.compress(codec, bytes(64 * 1024 * 1024)))
    struct.pack_into(">i", bomb, 8, len(bomb) - 12)
    struct.pack_into(">I", bomb, 17, crc32c.checksum(bytes(bomb[21:])))
    with open_log(tmp_path, decompressed_bytes_max=1 << 20, max_message_bytes=1 << 30) as log:
        assert_refused(log, bomb, errors.DecompressionError)


def test_an_older_leader_epoch_is_fenced(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append_as_leader(encode(), 5)
        with pytest.raises(errors.FencedLeaderEpochError):
            log.append_as_leader(encode(), 4)
        assert log.epochs == [(5, 0)]


def test_a_repeated_batch_of_an_idempotent_producer_gets_the_first_answer(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        sent = [
            encode(2, producer_id=9, producer_epoch=0, base_sequence=2 * number)
            for number in range(7)
        ]
        answers = [log.append_as_leader(batch, 0).base_offset for batch in sent]
        repeat = log.append_as_leader(sent[3], 0)
        assert (repeat.base_offset, repeat.duplicate) == (answers[3], True)
        assert_refused(log, sent[0], errors.OutOfOrderSequenceError)
        gap = encode(1, producer_id=9, producer_epoch=0, base_sequence=99)
        assert_refused(log, gap, errors.OutOfOrderSequenceError)
        assert log.log_end_offset == 14
    with open_log(tmp_path) as log:
        repeat = log.append_as_leader(sent[6], 0)
        assert (repeat.base_offset, repeat.duplicate) == (answers[6], True)


def test_log_append_time_stamps_the_batch_and_every_record(tmp_path: Path) -> None:
    with open_log(tmp_path, message_timestamp_type="LogAppendTime") as log:
        result = log.append([b"a", b"b"], timestamps=[5, 6])
        assert result.log_append_time_ms == NOW_MS
        assert [(r.timestamp, r.timestamp_type) for r in log] == [(NOW_MS, 1)] * 2


def test_a_topic_codec_is_applied_whatever_the_producer_sent(tmp_path: Path) -> None:
    with open_log(tmp_path, compression_type="zstd") as log:
        log.append_as_leader(encode(50, codec=3), 0)
        assert bytes(log.read(0))[22] & 7 == 4
        assert log.to_arrow().num_rows == 50


def test_a_slice_says_in_which_epoch_what_it_holds_below_an_offset_was_written(
    tmp_path: Path,
) -> None:
    with open_log(tmp_path) as log:
        for epoch in (0, 0, 3):
            log.append_as_leader(encode(4), epoch)
        read = log.read(0, 1 << 20)
        assert [read.epoch_before(end) for end in (0, 1, 8, 9, 12, 2**63 - 1)] == [
            -1,
            0,
            0,
            3,
            3,
            3,
        ]
        assert log.read(12).epoch_before(12) == -1
        cut = log.read(0, len(read) - 1)
        assert cut.epoch_before(12) == 0, "its last batch is cut"


def test_followers_keep_bytes_epochs_and_offsets(tmp_path: Path) -> None:
    with open_log(tmp_path / "leader") as leader, open_log(tmp_path / "follower") as follower:
        for epoch in (0, 0, 3):
            leader.append_as_leader(encode(4), epoch)
        whole = bytes(leader.read(0, 1 << 20))
        follower.append_as_follower(whole[:-5])
        assert follower.log_end_offset == 8
        follower.append_as_follower(leader.read(8))
        assert bytes(follower.read(0, 1 << 20)) == whole
        assert follower.epochs == leader.epochs == [(0, 0), (3, 8)]
        with pytest.raises(errors.OutOfOrderOffsetError):
            follower.append_as_follower(whole)
        damaged = bytearray(whole)
        damaged[-1] ^= 1
        with pytest.raises(errors.CorruptBatchError):
            follower.append_as_follower(damaged)
        assert follower.log_end_offset == 12


@pytest.mark.parametrize("split", ["in one set", "over two calls"])
def test_followers_refuse_an_epoch_below_that_of_the_log(tmp_path: Path, split: str) -> None:
    """Kept, it would erase the higher one from the epochs, which must not be written again then."""
    later, earlier = encode(2, leader_epoch=5), encode(2, leader_epoch=3, base_offset=2)
    with open_log(tmp_path) as log:
        parts = [later + earlier] if split == "in one set" else [later, earlier]
        for part in parts[:-1]:
            log.append_as_follower(part)
        with pytest.raises(errors.OutOfOrderOffsetError, match="epoch 5"):
            log.append_as_follower(parts[-1])
        log.append_as_follower(later[: len(later) * (2 - len(parts))])
        assert (log.epochs, log.log_end_offset) == ([(5, 0)], 2)
        with pytest.raises(errors.FencedLeaderEpochError):
            log.append([b"late"], leader_epoch=3)


def test_a_followers_set_with_a_wide_gap_goes_into_two_segments(tmp_path: Path) -> None:
    """Indexes keep offsets relative to the segment in 31 bits; a compacted log may skip more."""
    offsets = [7, 8, 8 + 2**31, 9 + 2**31, 2**40]
    sent = b"".join(encode(1, base_offset=at, leader_epoch=0, keys=[b"k"]) for at in offsets)
    with open_log(tmp_path, cleanup_policy="compact", index_interval_bytes=0) as log:
        log.append_as_follower(sent)
        assert [segment.base_offset for segment in log.segments] == [0, 8 + 2**31, 2**40]
        assert log.to_arrow()["offset"].to_pylist() == offsets
        log.close(flush=False)
    with open_log(tmp_path, cleanup_policy="compact", index_interval_bytes=0) as log:
        assert log.to_arrow()["offset"].to_pylist() == offsets
        assert log.read(9 + 2**31).end_offset == 10 + 2**31


def test_an_append_larger_than_a_segment_is_spread_over_several(tmp_path: Path) -> None:
    values = [b"%04d" % number * 20 for number in range(400)]
    with open_log(tmp_path, segment_bytes=4000, index_interval_bytes=500) as log:
        result = log.append(pa.array(values, pa.binary()))
        assert (result.base_offset, result.last_offset) == (0, 399)
        assert len(log.segments) > 5
        assert log.to_arrow(columns=["value"]).column("value").to_pylist() == values


def test_a_range_that_ends_inside_a_batch_gives_just_its_records(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=4000, index_interval_bytes=500) as log:
        for number in range(40):
            log.append([b"%d" % (10 * number + place) for place in range(10)])
        for start, end in [(0, 1), (3, 4), (5, 17), (99, 100), (0, 400), (395, 400), (7, 7)]:
            expected = [b"%d" % offset for offset in range(start, end)]
            assert log.to_arrow(start, end).column("value").to_pylist() == expected
            assert [record.value for record in log.records(start, end)] == expected


def test_an_epoch_that_could_not_be_written_is_written_by_the_next_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(keeper: LogKeeper, log: PartitionLog) -> None:
        raise errors.NoSpaceError("expected room for the epochs, found none; free space")

    with open_log(tmp_path) as log:
        log.append([b"a"], leader_epoch=0)
        with monkeypatch.context() as patch:
            patch.setattr(LogKeeper, "write_epochs", full)
            with pytest.raises(errors.NoSpaceError):
                log.append([b"b"], leader_epoch=1)
        assert log.epochs == [(0, 0)]
        log.append([b"b"], leader_epoch=1)
        shutil.copytree(log.path, tmp_path / "crashed" / "orders-0")
    for directory in (tmp_path, tmp_path / "crashed"):
        with open_log(directory) as log:
            assert [record.value for record in log] == [b"a", b"b"]
            assert log.epochs == [(0, 0), (1, 1)]


@pytest.mark.parametrize("harm", ["removed", "emptied"])
def test_a_last_segment_that_went_after_a_clean_stop_is_missed(tmp_path: Path, harm: str) -> None:
    with open_log(tmp_path, segment_bytes=300) as log:
        for number in range(12):
            log.append([b"%d" % number * 10])
        last = log.segments[-1].path
    if harm == "removed":
        os.unlink(last)
    else:
        os.truncate(last, 0)
    with pytest.raises(errors.CorruptBatchError, match="missing or cut"):
        open_log(tmp_path, segment_bytes=300)


def test_isolation_is_taken_by_its_kafka_name_and_nothing_else(tmp_path: Path) -> None:
    open_transaction = encode(
        1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    with open_log(tmp_path) as log:
        log.append_as_leader(open_transaction, 0)
        assert not list(log.records(isolation="read_committed"))
        assert len(list(log.records(isolation="read_uncommitted"))) == 1
        with pytest.raises(errors.UsageError):
            list(log.records(isolation="nonsense"))
