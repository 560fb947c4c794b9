"""The generated codecs against a twin in plain Python: same bytes, same fields, same refusals."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen.schema_table import Versions
from codegen.write_codecs import modules
from replog._native.record_encoder import encode
from replog.errors import (
    CorruptBatchError,
    MalformedMessageError,
    UnsupportedMessageVersionError,
    UsageError,
)
from replog.runtime.metadata_batches import leader_change_batch
from replog.wire import control_records, metadata_records
from replog.wire.metadata_records import (
    BrokerEndpoint,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from replog.wire.metadata_values import (
    decode_control,
    decode_metadata,
    decode_metadata_batch,
    encode_metadata,
)
from tests.fuzz.fuzzing import mutate
from tests.oracle import kafka_messages
from tests.wire.message_values import as_fields, built, messages

GENERATED = {"control_records": control_records, "metadata_records": metadata_records}
KINDS = [
    pytest.param(GENERATED[module.name], kind, version, id=f"{kind.name}-{version}")
    for module in modules()
    if module.name in GENERATED
    for kind in module.messages
    for version in range(kind.versions.low, kind.versions.high + 1)
]
METADATA_KINDS = [kind.values for kind in KINDS if kind.values[0] is metadata_records]
TOPIC_ID = bytes(range(16))
NO_OP = encode_metadata(NoOpRecord(), 0)


@pytest.mark.parametrize(("module", "kind", "version"), KINDS)
@settings(max_examples=40, deadline=None)
@given(chance=st.data())
def test_any_message_is_the_twins_bytes_and_comes_back(module, kind, version, chance):
    fields = chance.draw(messages(kind, version))
    message = built(module, kind, fields)
    content = message.encode(version)
    assert content == kafka_messages.encode(kind, fields, version)
    again = type(message).decode(content, version)
    assert again == message
    assert hash(again) == hash(message)
    assert as_fields(kind, again) == kafka_messages.decode_whole(kind, content, version)


@pytest.mark.parametrize(("module", "kind", "version"), KINDS)
def test_every_cut_of_a_message_is_refused_with_its_place(module, kind, version):
    """A prefix is never the whole message: its length is told by what it lacks."""
    content = getattr(module, kind.name)().encode(version)
    for end in range(len(content)):
        with pytest.raises(MalformedMessageError) as refused:
            getattr(module, kind.name).decode(content[:end], version)
        assert 0 <= refused.value.position <= end
        assert kind.name in str(refused.value)
    with pytest.raises(MalformedMessageError, match="expected the end"):
        getattr(module, kind.name).decode(content + b"\0", version)


@pytest.mark.parametrize(("module", "kind", "version"), KINDS)
@settings(max_examples=15, deadline=None)
@given(chance=st.data(), seed=st.integers(0, 2**32))
def test_damaged_bytes_are_taken_as_the_twin_takes_them(module, kind, version, chance, seed):
    """Goal: typed errors only, and no other reading of the same bytes."""
    fields = chance.draw(messages(kind, version))
    content = kafka_messages.encode(kind, fields, version)
    mutants = random.Random(seed)
    for _ in range(20):
        mutant = mutate(content, mutants)
        try:
            expected = as_fields_of_twin(kind, mutant, version)
        except kafka_messages.BadBytesError:
            with pytest.raises(MalformedMessageError):
                getattr(module, kind.name).decode(mutant, version)
        else:
            found = getattr(module, kind.name).decode(mutant, version)
            assert as_fields(kind, found) == expected


def as_fields_of_twin(kind, content, version):
    """No NaN equals another, so it stands as None."""
    found = kafka_messages.decode_whole(kind, content, version)
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in found.items()
    }


class TestFrames:
    def test_frame_and_message_come_apart_and_together(self):
        record = TopicRecord(name="orders", topic_id=TOPIC_ID)
        value = encode_metadata(record, 0)
        assert value == b"\x01\x02\x00\x07orders" + TOPIC_ID + b"\x00"
        found = decode_metadata(value)
        assert (found.version, found.message, found.type_name) == (0, record, "TOPIC_RECORD")

    def test_numbers_of_several_varint_bytes_are_read(self):
        assert decode_metadata(b"\x81\x00\x94\x00\x80\x00\x00").message == NoOpRecord()

    @pytest.mark.parametrize("value", [b"", b"\x01", b"\x01\x02", b"\x02\x02\x00", b"\xff" * 20])
    def test_a_frame_that_is_none_is_refused(self, value):
        with pytest.raises(MalformedMessageError):
            decode_metadata(value)

    @pytest.mark.parametrize(
        "value", [b"\x01\x7f\x00\x00", b"\x01\x02\x01\x00", b"\x01\x02\xff\xff\x7f"]
    )
    def test_a_kind_or_version_of_the_future_is_refused_as_such(self, value):
        with pytest.raises(UnsupportedMessageVersionError):
            decode_metadata(value)

    @pytest.mark.parametrize(
        ("key", "value", "error"),
        [
            (b"", b"\0\0\0", MalformedMessageError),
            (b"\0\0\0\x04", b"\0", MalformedMessageError),
            (b"\0\0\0\x04", b"\0\0\0\0", MalformedMessageError),
            (b"\0\0\0\x04", b"\0\x01\0", UnsupportedMessageVersionError),
            (b"\0\0\0\x09", b"\0\0\0", UnsupportedMessageVersionError),
            (b"\0\0\0\x00", b"\0\0\0\0\0\0", UnsupportedMessageVersionError),
        ],
    )
    def test_a_control_record_that_is_none_is_refused(self, key, value, error):
        with pytest.raises(error):
            decode_control(key, value)


class TestBatches:
    """Many values in one call are what each is by itself."""

    @settings(max_examples=40, deadline=None)
    @given(chance=st.data(), codec=st.integers(0, 4))
    def test_the_messages_of_a_batch_are_those_of_its_values(self, chance, codec):
        """Method: kinds and versions change from record to record, or stay for a while."""
        values = []
        for _ in range(chance.draw(st.integers(1, 6))):
            module, kind, version = chance.draw(st.sampled_from(METADATA_KINDS))
            fields = chance.draw(messages(kind, version))
            values += [encode_metadata(built(module, kind, fields), version)] * chance.draw(
                st.integers(1, 3)
            )
        batch = encode(values, now_ms=1, codec=codec, base_offset=7)
        assert decode_metadata_batch(batch) == [decode_metadata(value).message for value in values]

    def test_a_control_batch_holds_none(self):
        assert decode_metadata_batch(leader_change_batch(1, (1, 2), (1,), 1)) == []

    @pytest.mark.parametrize(
        ("values", "error"),
        [
            ([NO_OP, None], MalformedMessageError),
            ([NO_OP, b""], MalformedMessageError),
            ([NO_OP, NO_OP + b"\0"], MalformedMessageError),
            ([NO_OP, b"\x02" + NO_OP[1:]], MalformedMessageError),
            ([NO_OP, b"\x01\x7f\x00\x00"], UnsupportedMessageVersionError),
            ([NO_OP, b"\x01\x14\x01\x00"], UnsupportedMessageVersionError),
        ],
    )
    def test_a_value_that_is_none_is_refused_wherever_it_stands(self, values, error):
        with pytest.raises(error):
            decode_metadata_batch(encode(values, now_ms=1))

    def test_a_value_ends_where_its_record_says(self):
        """The bytes behind a cut message are the next record's."""
        topic = encode_metadata(TopicRecord(name="orders", topic_id=TOPIC_ID), 0)
        with pytest.raises(MalformedMessageError, match="TopicRecord"):
            decode_metadata_batch(encode([topic[:-1], topic], now_ms=1))

    def test_a_damaged_batch_is_refused_as_a_whole(self):
        sound = encode([NO_OP] * 3, now_ms=1)
        for place in range(21, len(sound)):
            damaged = bytearray(sound)
            damaged[place] ^= 4
            with pytest.raises(CorruptBatchError):
                decode_metadata_batch(damaged)


class TestHostileLengths:
    """Nothing is allocated for a count that the bytes left cannot hold."""

    @pytest.mark.parametrize(
        "count", [b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x08"]
    )
    def test_an_array_longer_than_the_message_is_refused(self, count):
        content = bytes(20) + count + bytes(40)
        with pytest.raises(MalformedMessageError) as refused:
            PartitionRecord.decode(content, 0)
        assert refused.value.position == 25, "before the first element is read"

    def test_a_varint_of_six_bytes_is_refused(self):
        with pytest.raises(MalformedMessageError, match="at most 5 bytes"):
            TopicRecord.decode(b"\xff" * 30, 0)

    def test_a_string_that_is_no_utf8_is_refused_where_it_begins(self):
        with pytest.raises(MalformedMessageError, match="UTF-8") as refused:
            TopicRecord.decode(b"\x03\xc3\x28" + TOPIC_ID + b"\0", 0)
        assert refused.value.position == 1

    def test_null_where_none_may_be_is_refused(self):
        with pytest.raises(MalformedMessageError):
            TopicRecord.decode(b"\x00" + TOPIC_ID + b"\0", 0)

    def test_a_billion_tags_end_with_the_bytes(self):
        with pytest.raises(MalformedMessageError):
            NoOpRecord.decode(b"\xff\xff\xff\xff\x0f" + b"\x63\x00" * 50, 0)


class TestTags:
    def test_unknown_tags_are_skipped(self):
        change = PartitionChangeRecord(partition_id=3, topic_id=TOPIC_ID, leader=7)
        content = change.encode(0)
        assert content[20] == 1
        longer = content[:20] + b"\x02" + content[21:] + b"\x63\x02ab"
        assert PartitionChangeRecord.decode(longer, 0) == change

    def test_a_tag_of_a_later_version_is_unknown_to_an_earlier_one(self):
        change = PartitionChangeRecord(topic_id=TOPIC_ID, last_known_elr=(1,))
        content = change.encode(2)
        assert PartitionChangeRecord.decode(content, 2).last_known_elr == (1,)
        assert PartitionChangeRecord.decode(content, 1).last_known_elr is None

    def test_tags_are_written_in_rising_order_and_only_where_they_say_something(self):
        change = PartitionChangeRecord(
            topic_id=TOPIC_ID, isr=(), leader=-2, directories=(TOPIC_ID,), last_known_elr=()
        )
        assert change.encode(2)[20:] == b"\x03\x00\x01\x01\x07\x01\x01\x08\x11\x02" + TOPIC_ID

    def test_a_tag_whose_length_is_wrong_is_refused(self):
        content = bytearray(PartitionChangeRecord(topic_id=TOPIC_ID, leader=7).encode(0))
        content[22] = 3
        with pytest.raises(MalformedMessageError, match="end of a tagged field"):
            PartitionChangeRecord.decode(bytes(content), 0)


class TestWriting:
    def test_a_version_that_lacks_a_field_refuses_it_unless_it_is_at_its_default(self):
        record = PartitionRecord(topic_id=TOPIC_ID, directories=(TOPIC_ID,))
        with pytest.raises(UnsupportedMessageVersionError, match="directories"):
            record.encode(0)
        with pytest.raises(UnsupportedMessageVersionError, match="eligible_leader_replicas"):
            PartitionRecord(eligible_leader_replicas=(1,)).encode(1)
        assert PartitionRecord().encode(0)

    def test_unknown_versions_are_refused(self):
        for version in (-1, 3):
            with pytest.raises(UnsupportedMessageVersionError, match="from 0 to 2"):
                PartitionRecord().encode(version)
            with pytest.raises(UnsupportedMessageVersionError, match="from 0 to 2"):
                PartitionRecord.decode(b"", version)

    @pytest.mark.parametrize(
        ("record", "version"),
        [
            (PartitionRecord(replicas=(2**31,)), 0),
            (PartitionRecord(replicas=("1",)), 0),
            (PartitionRecord(replicas=(None,)), 0),
            (PartitionRecord(topic_id=b"short"), 0),
            (PartitionRecord(directories=("text",)), 1),
            (TopicRecord(name="\ud800"), 0),
            (RegisterBrokerRecord(end_points=(FeatureLevelRecord(),)), 0),
            (RegisterBrokerRecord(end_points=(None,)), 0),
        ],
    )
    def test_what_the_type_cannot_hold_is_refused_with_a_sentence(self, record, version):
        with pytest.raises(UsageError, match="expected"):
            record.encode(version)

    @pytest.mark.parametrize(
        "wrong",
        [
            lambda: PartitionRecord(replicas=[1]),
            lambda: PartitionRecord(replicas=None),
            lambda: PartitionRecord(leader=2**31),
            lambda: TopicRecord(name=None),
            lambda: TopicRecord(title="x"),
            lambda: BrokerEndpoint(port=-1),
        ],
    )
    def test_what_a_field_cannot_hold_is_refused_where_it_is_given(self, wrong):
        with pytest.raises((TypeError, OverflowError)):
            wrong()

    def test_messages_never_change(self):
        with pytest.raises(AttributeError):
            TopicRecord(name="a").name = "b"

    def test_equal_messages_are_of_one_kind_and_equal_fields(self):
        assert TopicRecord(name="a") == TopicRecord(name="a") != TopicRecord(name="b")
        assert NoOpRecord() != ConfigRecord()
        assert repr(ConfigRecord(name="n")) == (
            "ConfigRecord(resource_type=0, resource_name='', name='n', value='')"
        )

    def test_json_has_kafkas_names_and_leaves_default_tags_out(self):
        change = PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, isr=(2, 3))
        assert change.as_json(2) == {
            "partitionId": 1,
            "topicId": "AAECAwQFBgcICQoLDA0ODw",
            "isr": [2, 3],
        }


def test_versions_read_as_they_are_written():
    assert Versions.parse("2+").low == 2
    assert 5 in Versions.parse("2-5")
    assert 6 not in Versions.parse("2-5")
    assert Versions.parse("3") == Versions(3, 3)
