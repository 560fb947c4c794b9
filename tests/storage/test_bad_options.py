"""Options, paths and names that cannot be: typed errors that name them, nothing created."""

import dataclasses
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import replog
from replog.errors import LogClosedError, ReplogError, UsageError
from replog.storage.partition_log import PartitionLog
from tests.parameter_names import named

NUMBERS = [
    field.name for field in dataclasses.fields(replog.LogConfig) if isinstance(field.default, int)
]
CHOICES = ["flush_mode", "compression_type", "message_timestamp_type", "cleanup_policy"]


class Unprintable:
    def __index__(self) -> int:
        raise ZeroDivisionError

    def __repr__(self) -> str:
        raise OSError


STRANGE = (None, 1.5, "1", b"1", True, 2**63, 2**80, -2, [], {}, object(), Unprintable())


@pytest.mark.parametrize("name", [*NUMBERS, *CHOICES, "compression_level"])
def test_every_option_refuses_what_it_is_not(name: str) -> None:
    for bad in STRANGE:
        if name == "compression_level" and bad in (None, -2):
            continue
        with pytest.raises(UsageError, match=rf"expected {name} .*found") as caught:
            replog.LogConfig(**{name: bad})
        assert caught.value.facts["argument"] == name


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_takes_its_default_from_numpy(name: str) -> None:
    default = replog.LogConfig.__dataclass_fields__[name].default
    found = getattr(replog.LogConfig(**{name: np.int64(default)}), name)
    assert found == default
    assert type(found) is int


@pytest.mark.parametrize(
    ("codec", "level"), [("gzip", 10), ("lz4", 0), ("lz4", 18), ("zstd", 23), ("producer", 23)]
)
def test_a_level_that_the_codec_does_not_have_is_refused(codec: Any, level: int) -> None:
    with pytest.raises(UsageError, match="compression_level"):
        replog.LogConfig(compression_type=codec, compression_level=level)


@pytest.mark.parametrize(
    "topic_config",
    [
        None, 5, "a=b", [("retention.ms", "1")], {1: "1"}, {"retention.ms": None},
        {"retention.ms": "1.5"}, {"retention.ms": "1_000"}, {"retention.ms": ""},
        {"retention.ms": b"1"}, {"retention.ms": True}, {"retention.ms": "9" * 5000},
        {"cleanup.policy": None}, {"cleanup.policy": 1}, {"compression.type": "brotli"},
        {"segment.byte": "1000"}, {"flush.mode ": "os"}, {"": "1"},
    ],
    ids=named,
)  # fmt: skip
def test_kafkas_configuration_is_text(topic_config: Any) -> None:
    with pytest.raises(UsageError, match=r"expected .* found"):
        replog.LogConfig.from_kafka(topic_config)


def test_kafkas_options_of_replicas_are_left_out_and_a_mistyped_name_is_told() -> None:
    options = {"min.insync.replicas": "2", "segment.bytes": "5000"}
    assert replog.LogConfig.from_kafka(options) == replog.LogConfig(segment_bytes=5000)
    with pytest.raises(UsageError, match=r"'segment\.byte'.*write segment\.bytes"):
        replog.LogConfig.from_kafka({"segment.byte": "5000"})


BAD_PATHS = (
    None, 5, b"orders-0", b"/tmp/orders-0", "", "a\0b-0", "\ud800-0", object(), 1.5, [],
    "/dev/null/x-0", "/proc/x-0", "/dev/null", "/" + "/".join(["d" * 200] * 30) + "/x-0",
    Unprintable(),
)  # fmt: skip


@pytest.mark.parametrize("path", BAD_PATHS, ids=named)
@pytest.mark.parametrize("opened", [PartitionLog, replog.LogDirectory])
def test_a_path_that_cannot_be_opened_is_refused(opened: Any, path: Any) -> None:
    with pytest.raises(ReplogError, match=r"expected .*found"):
        opened.open(path)


@pytest.mark.parametrize("opened", [PartitionLog, replog.LogDirectory])
def test_a_file_in_place_of_the_directory_is_refused(opened: Any, tmp_path: Path) -> None:
    file = tmp_path / "orders-0"
    file.write_bytes(b"mine")
    for path in (file, file / "orders-0"):
        with pytest.raises(UsageError, match=r"orders-0"):
            opened.open(path)
    assert file.read_bytes() == b"mine"


@pytest.mark.parametrize("opened", [PartitionLog, replog.LogDirectory])
@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_directory_without_permission_is_refused(opened: Any, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ReplogError, match="orders-0"):
        opened.open(tmp_path / "orders-0")


@pytest.mark.parametrize(
    ("argument", "bad"),
    [
        ("config", "x"), ("config", {}), ("config", replog.LogConfig), ("now_ms", 5),
        ("now_ms", "now"), ("on_progress", 5), ("now_ms", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("opened", [PartitionLog, replog.LogDirectory])
def test_an_option_of_open_is_refused_and_nothing_is_made(
    opened: Any, argument: str, bad: Any, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=argument):
        opened.open(tmp_path / "orders-0", **{argument: bad})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("argument", "bad"),
    [
        ("configs", 5), ("configs", "x"), ("configs", {"t": {}}), ("cluster_id", 5),
        ("cluster_id", b"x"), ("cluster_id", ""), ("node_id", "1"), ("node_id", -1),
        ("node_id", 2**31), ("node_id", True), ("replicated", 1), ("replicated", None),
        ("recovery_threads", 0), ("recovery_threads", "2"), ("recovery_threads", 10**9),
    ],
)  # fmt: skip
def test_an_option_of_a_log_directory_is_refused(argument: str, bad: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=argument):
        replog.LogDirectory.open(tmp_path / "logs", **{argument: bad})
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[replog.LogDirectory]:
    with replog.LogDirectory.open(tmp_path_factory.mktemp("logs") / "logs") as opened:
        opened.create_partition("a", 0)
        yield opened
        assert [str(key) for key in opened] == ["a-0"]


BAD_NAMES = (
    None, 5, "a-0", ("a",), ("a", "0"), ("a", -1), ("a", True), ("a", 2**31), (None, 0),
    (b"a", 0), ["a", 0], ("a/b", 0), ("..", 0), ("", 0), ("a" * 250, 0), ("\ud800", 0),
    ("a", 1.0), ("../a", 0), ([], {}), Unprintable(),
)  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES, ids=named)
def test_what_is_no_partition_is_refused(directory: replog.LogDirectory, name: Any) -> None:
    for call in (directory.delete_partition, directory.__getitem__):
        with pytest.raises(UsageError, match="expected"):
            call(name)
    assert name not in directory
    if isinstance(name, tuple) and len(name) == 2:
        with pytest.raises(UsageError, match="expected"):
            directory.create_partition(*name)


def test_a_pair_names_a_partition(directory: replog.LogDirectory) -> None:
    assert directory[("a", 0)] is directory[replog.TopicPartition("a", 0)]  # type: ignore[index]
    assert directory.create_partition("b", 1).topic_partition == ("b", 1)
    directory.delete_partition(("b", 1))  # type: ignore[arg-type]
    assert len(directory) == 1


@pytest.mark.parametrize("topic_id", ["x", 5, b"x" * 16, uuid.UUID(int=1).hex])
def test_a_topic_id_is_a_uuid(directory: replog.LogDirectory, topic_id: Any) -> None:
    with pytest.raises(UsageError, match="topic_id"):
        directory.create_partition("c", 0, topic_id)


@pytest.mark.parametrize("bad", ["x", 1.5, True, 2**64, -2])
def test_times_and_epochs_of_a_directory_are_integers(
    directory: replog.LogDirectory, bad: Any
) -> None:
    with pytest.raises(UsageError, match="now_ms"):
        directory.remove_deleted(bad)
    with pytest.raises(UsageError, match="broker_epoch"):
        directory.close(bad)


CLOSED: dict[str, Any] = {
    "with": lambda log: log.__enter__(),
    "append": lambda log: log.append([b"x"]),
    "append_as_leader": lambda log: log.append_as_leader(b"x", 0),
    "append_as_follower": lambda log: log.append_as_follower(b"x"),
    "read": lambda log: log.read(0),
    "records": lambda log: log.records(),
    "iteration": iter,
    "to_arrow": lambda log: log.to_arrow(),
    "flush": lambda log: log.flush(),
    "commit": lambda log: log.commit(2**40),
    "checkpoint": lambda log: log.checkpoint(),
    "roll": lambda log: log.roll(),
    "truncate_to": lambda log: log.truncate_to(0),
    "truncate_prefix_to": lambda log: log.truncate_prefix_to(1),
    "truncate_fully_and_start_at": lambda log: log.truncate_fully_and_start_at(5),
    "set_high_watermark": lambda log: log.set_high_watermark(1),
    "high_watermark": lambda log: setattr(log, "high_watermark", 1),
    "assign_epoch": lambda log: log.assign_epoch(5, 5),
    "end_offset_for_epoch": lambda log: log.end_offset_for_epoch(0),
    "epoch_for_offset": lambda log: log.epoch_for_offset(0),
    "offset_for_timestamp": lambda log: log.offset_for_timestamp(0),
    "offset_of_max_timestamp": lambda log: log.offset_of_max_timestamp(),
    "aborted_transactions": lambda log: log.aborted_transactions(0, 1),
    "apply_retention": lambda log: log.apply_retention(),
    "unlink_retired": lambda log: log.unlink_retired(),
}


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> PartitionLog:
    log = PartitionLog.open(tmp_path_factory.mktemp("closed") / "orders-0")
    log.append([b"a", b"b"])
    log.close()
    return log


@pytest.mark.parametrize("name", CLOSED)
def test_a_closed_log_says_so_by_its_own_name(closed: PartitionLog, name: str) -> None:
    with pytest.raises(LogClosedError, match=r"orders-0 closed; open it again") as caught:
        CLOSED[name](closed)
    assert caught.value.path == closed.path


def test_a_closed_log_still_tells_where_it_ended(closed: PartitionLog) -> None:
    closed.close()
    assert (closed.log_start_offset, closed.log_end_offset, closed.high_watermark) == (0, 2, 2)
    assert (closed.last_stable_offset, closed.latest_epoch, closed.epochs) == (2, 0, [(0, 0)])
    assert closed.recovery_point == 2
    assert closed.size_bytes > 0
    assert repr(closed) == "<PartitionLog orders-0 [0, 2)>"


@pytest.mark.parametrize(
    "call",
    [
        lambda directory: directory.__enter__(),
        lambda directory: directory.create_partition("b", 0),
        lambda directory: directory.delete_partition(("a", 0)),
        lambda directory: directory[("a", 0)],
        lambda directory: directory.checkpoint_recovery_points(),
        lambda directory: directory.checkpoint_log_start_offsets(),
        lambda directory: directory.checkpoint_high_watermarks(),
        lambda directory: directory.remove_deleted(),
    ],
)
def test_a_closed_directory_says_so_by_its_own_name(call: Any, tmp_path: Path) -> None:
    directory = replog.LogDirectory.open(tmp_path / "logs")
    log = directory.create_partition("a", 0)
    directory.close()
    directory.close()
    with pytest.raises(LogClosedError, match="logs closed; open it again"):
        call(directory)
    with pytest.raises(LogClosedError, match="a-0 closed"):
        log.append([b"x"])
