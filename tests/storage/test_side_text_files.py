"""Every text file of a log directory: round trips, Kafka's own files, damage, absence."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replog.errors import CorruptFileError, ReplogError, UsageError
from replog.storage.checkpoint_files import (
    read_leader_epochs,
    read_offset_checkpoint,
    write_leader_epochs,
    write_offset_checkpoint,
)
from replog.storage.clean_shutdown import (
    CleanShutdown,
    read_clean_shutdown,
    remove_clean_shutdown,
    write_clean_shutdown,
)
from replog.storage.kafka_uuid import format_uuid, parse_uuid, random_uuid
from replog.storage.meta_properties import (
    MetaProperties,
    parse_properties,
    read_meta_properties,
    write_meta_properties,
)
from replog.storage.partition_metadata import read_topic_id, write_topic_id
from replog.storage.quorum_state import QuorumState, read_quorum_state, write_quorum_state
from replog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

FIXTURES = Path(os.environ.get("REPLOG_FIXTURES", "tests/golden"))
ID = parse_uuid("Zm9vYmFyYmF6cXV1eDEyMw")
ORDERS = {TopicPartition("orders", 1): 8800, TopicPartition("orders", 0): 9120}


def test_an_offset_checkpoint_is_written_as_kafka_documents_it(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    write_offset_checkpoint(path, ORDERS)
    assert path.read_text() == "0\n2\norders 0 9120\norders 1 8800\n"
    assert read_offset_checkpoint(path) == ORDERS
    assert list(tmp_path.iterdir()) == [path]


def test_leader_epochs_are_written_as_kafka_documents_them(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    write_leader_epochs(path, [(0, 0), (5, 1034)])
    assert path.read_text() == "0\n2\n0 0\n5 1034\n"
    assert read_leader_epochs(path) == [(0, 0), (5, 1034)]


@pytest.mark.parametrize("content", ["", "0\n", "0\n0\n", "0\n0"])
def test_an_empty_checkpoint_holds_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "checkpoint"
    path.write_text(content)
    assert read_offset_checkpoint(path) == {}
    assert read_leader_epochs(path) == []


@pytest.mark.parametrize("content", ["0\r\n1\r\na \t 0   7\r\n", "0\n1\na 0 7", "0\n1\na 0 7 \n"])
def test_line_ends_and_gaps_may_be_those_of_an_editor(tmp_path: Path, content: str) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(content.encode())
    assert read_offset_checkpoint(path) == {TopicPartition("a", 0): 7}


@pytest.mark.parametrize(
    ("content", "line_number"),
    [
        ("1\n0\n", 1),
        ("x\n", 1),
        ("\n\n", 1),
        ("0\nx\n", 2),
        ("0\n-1\n", 2),
        ("0\n2\na 0 7\n", 2),
        ("0\n1\na 0 7\nb 0 7\n", 2),
        ("0\n1\na 0\n", 3),
        ("0\n1\na 0 7 8\n", 3),
        ("0\n1\n a 0 7\n", 3),
        ("0\n1\na x 7\n", 3),
        ("0\n1\na 0 -7\n", 3),
        ("0\n1\na 0 9223372036854775808\n", 3),
        ("0\n1\na 2147483648 7\n", 3),
        ("0\n1\na/b 0 7\n", 3),
        ("0\n2\na 0 7\na 0 8\n", 4),
        ("0\n1\na 0 \u0663\n", 3),
    ],
)
def test_a_damaged_offset_checkpoint_names_file_and_line(
    tmp_path: Path, content: str, line_number: int
) -> None:
    path = tmp_path / "replication-offset-checkpoint"
    path.write_text(content)
    with pytest.raises(CorruptFileError, match="replication-offset-checkpoint") as raised:
        read_offset_checkpoint(path)
    assert raised.value.facts == {"path": str(path), "line_number": line_number}


def test_bytes_that_are_not_utf_8_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"0\n1\n\xff 0 7\n")
    with pytest.raises(CorruptFileError, match="UTF-8"):
        read_offset_checkpoint(path)


@pytest.mark.parametrize("content", ["0\n1\n1 2 3\n", "0\n1\n-1 0\n", "0\n1\n0 x\n"])
def test_damaged_leader_epochs_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text(content)
    with pytest.raises(CorruptFileError):
        read_leader_epochs(path)


@pytest.mark.parametrize(
    "read",
    [
        read_offset_checkpoint,
        read_leader_epochs,
        read_topic_id,
        read_meta_properties,
        read_quorum_state,
        read_clean_shutdown,
    ],
)
def test_a_missing_file_is_none(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    assert read(tmp_path / "missing") is None


def test_partition_metadata_is_written_as_kafka_documents_it(tmp_path: Path) -> None:
    path = tmp_path / "partition.metadata"
    write_topic_id(path, ID)
    assert path.read_bytes() == b"version: 0\ntopic_id: Zm9vYmFyYmF6cXV1eDEyMw"
    assert read_topic_id(path) == ID
    with pytest.raises(UsageError):
        write_topic_id(path, uuid.UUID(int=0))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "version: 0\n",
        "version: -1\ntopic_id: Zm9vYmFyYmF6cXV1eDEyMw",
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        "version: 0\ntopic_id: Zm9v",
        "version: 0\ntopic: Zm9vYmFyYmF6cXV1eDEyMw",
        "version: 0\ntopic_id: Zm9vYmFyYmF6cXV1eDEyMx",
    ],
)
def test_damaged_partition_metadata_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "partition.metadata"
    path.write_text(content)
    with pytest.raises(CorruptFileError, match=r"partition\.metadata"):
        read_topic_id(path)


@given(st.uuids())
def test_an_id_has_22_characters_and_is_read_back(value: uuid.UUID) -> None:
    assert len(format_uuid(value)) == 22
    assert parse_uuid(format_uuid(value)) == value


def test_new_ids_never_start_with_a_dash() -> None:
    assert not any(format_uuid(random_uuid()).startswith("-") for _ in range(300))


@pytest.mark.parametrize("text", ["", "A", "A" * 21, "A" * 23, "A" * 21 + "/", "A" * 20 + "=="])
def test_other_texts_are_no_ids(text: str) -> None:
    with pytest.raises(ValueError, match="expected 22"):
        parse_uuid(text)


def test_the_clean_shutdown_marker_carries_the_broker_epoch(tmp_path: Path) -> None:
    write_clean_shutdown(tmp_path, 57)
    marker = tmp_path / ".kafka_cleanshutdown"
    assert marker.read_text() == '{"version":0,"brokerEpoch":57}'
    assert read_clean_shutdown(tmp_path) == CleanShutdown(57)
    remove_clean_shutdown(tmp_path)
    remove_clean_shutdown(tmp_path)
    assert read_clean_shutdown(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", "7", "{", '{"version":1,"brokerEpoch":5}', '{"version":0,"brokerEpoch":-1}'],
)
def test_a_marker_without_a_readable_epoch_is_clean_all_the_same(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_text(content)
    assert read_clean_shutdown(tmp_path) == CleanShutdown(None)


META = MetaProperties(cluster_id="q1Sh-9_ISia_zwGINzRvyQ", node_id=1, directory_id=ID)


def test_meta_properties_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    write_meta_properties(path, META)
    assert path.read_text().splitlines()[1:] == [
        "node.id=1",
        "directory.id=Zm9vYmFyYmF6cXV1eDEyMw",
        "version=1",
        "cluster.id=q1Sh-9_ISia_zwGINzRvyQ",
    ]
    assert read_meta_properties(path) == META


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_any_cluster_id_is_escaped_and_read_back(
    tmp_path_factory: pytest.TempPathFactory, cluster_id: str
) -> None:
    path = tmp_path_factory.mktemp("meta") / "meta.properties"
    written = MetaProperties(cluster_id=cluster_id, node_id=3)
    write_meta_properties(path, written)
    assert read_meta_properties(path) == written


def test_version_0_calls_the_node_broker(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    path.write_text("version=0\nbroker.id=4\n")
    assert read_meta_properties(path) == MetaProperties(cluster_id=None, node_id=4, version=0)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "version=2\nnode.id=1\ncluster.id=x\n",
        "version=x\n",
        "version=1\ncluster.id=x\n",
        "version=1\nnode.id=1\n",
        "version=1\nnode.id=-1\ncluster.id=x\n",
        "version=1\nnode.id=1\ncluster.id=x\ndirectory.id=short\n",
        "version=1\nnode.id=1\ncluster.id=\\u12\n",
    ],
)
def test_damaged_meta_properties_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "meta.properties"
    path.write_text(content)
    with pytest.raises(CorruptFileError, match=r"meta\.properties"):
        read_meta_properties(path)


def test_java_properties_in_all_their_spellings_are_read() -> None:
    text = "! no\n  a : 1\nb\t2\r\nc = x\\\n   y\nd\\=e=\\u0041\\t\\z\nf\n\n#g=1\na=3"
    expected = {"a": "3", "b": "2", "c": "xy", "d=e": "A\tz", "f": ""}
    assert parse_properties(text) == expected


@pytest.mark.parametrize(
    "state",
    [
        QuorumState(leader_id=1, leader_epoch=2, voted_id=-1),
        QuorumState(leader_id=-1, leader_epoch=7, voted_id=2, voted_directory_id=ID),
        QuorumState(leader_id=3, leader_epoch=1, version=0, cluster_id="x", current_voters=(1, 2)),
    ],
)
def test_a_quorum_state_is_read_back(tmp_path: Path, state: QuorumState) -> None:
    write_quorum_state(tmp_path / "quorum-state", state)
    assert read_quorum_state(tmp_path / "quorum-state") == state


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"leaderId":1,"leaderEpoch":2,"votedId":-1,"data_version":2}',
        '{"leaderId":true,"leaderEpoch":2,"votedId":-1,"data_version":1}',
        '{"leaderId":1,"leaderEpoch":-2,"votedId":-1,"data_version":1}',
        '{"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":7,"data_version":1}',
    ],
)
def test_a_damaged_quorum_state_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "quorum-state").write_text(content)
    with pytest.raises(CorruptFileError, match="quorum-state"):
        read_quorum_state(tmp_path / "quorum-state")


def rewrite_offsets(path: Path, to: Path) -> None:
    offsets = read_offset_checkpoint(path)
    assert offsets is not None
    write_offset_checkpoint(to, offsets)
    before = sorted(path.read_text().splitlines()) or ["0", "0"]
    assert sorted(to.read_text().splitlines()) == before


def rewrite_epochs(path: Path, to: Path) -> None:
    epochs = read_leader_epochs(path)
    assert epochs is not None
    write_leader_epochs(to, epochs)
    assert to.read_bytes() == (path.read_bytes() or b"0\n0\n")


def rewrite_topic_id(path: Path, to: Path) -> None:
    topic_id = read_topic_id(path)
    assert topic_id is not None
    write_topic_id(to, topic_id)
    assert to.read_bytes() == path.read_bytes()


def rewrite_meta_properties(path: Path, to: Path) -> None:
    properties = read_meta_properties(path)
    assert properties is not None
    write_meta_properties(to, properties)
    assert to.read_text().splitlines()[1:] == path.read_text().splitlines()[2:]


def rewrite_quorum_state(path: Path, to: Path) -> None:
    state = read_quorum_state(path)
    assert state is not None
    write_quorum_state(to, state)
    assert to.read_bytes() == path.read_bytes()


def rewrite_clean_shutdown(path: Path, to: Path) -> None:
    marker = read_clean_shutdown(path.parent)
    assert marker is not None
    assert marker.broker_epoch is not None
    write_clean_shutdown(to.parent, marker.broker_epoch)
    assert (to.parent / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("name", "rewrite"),
    [
        ("*-offset-checkpoint", rewrite_offsets),
        ("leader-epoch-checkpoint", rewrite_epochs),
        ("partition.metadata", rewrite_topic_id),
        ("meta.properties", rewrite_meta_properties),
        ("quorum-state", rewrite_quorum_state),
        (".kafka_cleanshutdown", rewrite_clean_shutdown),
    ],
)
def test_kafkas_own_files_are_read_and_written_back(
    tmp_path: Path, name: str, rewrite: Callable[[Path, Path], None]
) -> None:
    """All but those of the cases that were damaged on purpose."""
    written = 0
    for path in sorted(FIXTURES.rglob(name)):
        if "torn" in str(path):
            continue
        rewrite(path, tmp_path / "copy")
        written += 1
    if not written:
        pytest.skip(f"no {name} under {FIXTURES}")


@pytest.mark.parametrize(
    ("name", "write", "read"),
    [
        ("offsets", lambda path: write_offset_checkpoint(path, ORDERS), read_offset_checkpoint),
        ("epochs", lambda path: write_leader_epochs(path, [(0, 0), (5, 99)]), read_leader_epochs),
        ("topic", lambda path: write_topic_id(path, ID), read_topic_id),
        ("meta", lambda path: write_meta_properties(path, META), read_meta_properties),
        ("quorum", lambda path: write_quorum_state(path, QuorumState()), read_quorum_state),
    ],
)
def test_every_flipped_bit_gives_a_value_or_a_typed_error(
    tmp_path: Path, name: str, write: Callable[[Path], None], read: Callable[[Path], Any]
) -> None:
    path = tmp_path / name
    write(path)
    content = path.read_bytes()
    for position in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[position] ^= 1 << bit
            path.write_bytes(bytes(damaged))
            try:
                read(path)
            except ReplogError as error:
                assert error.path == str(path)  # noqa: PT017 - the value is as good
