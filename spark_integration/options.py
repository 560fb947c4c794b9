"""Options of the data source `replog`: those of Spark's Kafka source, and its own.

Names are taken without regard to case, as Spark gives them. A name that means nothing here is
refused, so that a misspelt limit cannot change an answer; what steers a Kafka client (`kafka.*` and
its like) is accepted and ignored. README.md in this directory lists them.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from replog.errors import UsageError
from replog.types import Isolation, TopicPartition
from spark_integration.limits import (
    ByPartition,
    Limit,
    check_batch_limits,
    parse_json,
    parse_limit,
    parse_partition_numbers,
)
from spark_integration.schema import default_columns

logger = logging.getLogger(__name__)

MIB = 1024 * 1024
BATCH_ROWS = 32768
_SIZES = {"": 1, "b": 1, "k": 1024, "m": MIB, "g": 1024 * MIB}
_DURATIONS_MS = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_ISOLATIONS = {
    one.value: one for one in Isolation if one is not Isolation.LOG_END
}  # what is not committed is never read
_STRATEGIES = ("subscribe", "subscribepattern", "assign")
_ENDINGS = ("endingtimestamp", "endingoffsetsbytimestamp", "endingoffsets")
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
                "maxBytesPerTrigger")  # fmt: skip
# What steers a Kafka client, and what Spark adds to the options of a table of its catalog.
_IGNORED = re.compile(
    r"kafka\..*|groupidprefix|fetchoffset\..*|kafkaconsumer\.polltimeoutms"
    r"|option\..*|provider|owner|comment|collation|location|external|is_managed_location"
)

Mode = Literal["FAILFAST", "PERMISSIVE", "DROPMALFORMED"]
_MODES: tuple[Mode, ...] = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")
Replicas = Literal["highest", "verify"]


class Topics(NamedTuple):
    """Every partition of the topics `names`."""

    names: tuple[str, ...]


class Pattern(NamedTuple):
    """Every partition of the topics whose whole name matches."""

    expression: str


class Assigned(NamedTuple):
    """These partitions."""

    partitions: tuple[TopicPartition, ...]


Selection = Topics | Pattern | Assigned


@dataclasses.dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a read is asked to do.

    paths: as given, not yet looked at. selection: None for every topic. start, end: where to read.
    strategy_latest: start at the end where no record is as late as a starting timestamp.
    snapshot: text of a snapshot that fixes the read. high_watermarks: instead of the checkpoints'.
    partition_bytes_max: file bytes of a Spark partition, about. batch_rows: most rows of a batch.
    """

    paths: tuple[str, ...]
    selection: Selection | None
    start: Limit
    end: Limit
    strategy_latest: bool
    fail_on_data_loss: bool
    isolation: Isolation
    snapshot: str | None
    high_watermarks: ByPartition
    replicas: Replicas
    include_headers: bool
    include_leader_epoch: bool
    mode: Mode
    pushdown: bool
    partitions_min: int | None
    partition_records_max: int | None
    partition_bytes_max: int
    batch_rows: int
    check_crc: bool
    trigger_offsets_max: int | None
    trigger_offsets_min: int | None
    trigger_delay_ms_max: int
    trigger_bytes_max: int | None

    @classmethod
    def batch(cls, options: Mapping[str, str]) -> SourceOptions:
        """Options of a batch query. Raises UsageError."""
        given = _Given(options)
        for name in _STREAM_ONLY:
            if given.text(name) is not None:
                logger.warning("the option %s is ignored in batch queries", name)
        start = parse_limit(given.texts, "starting", "earliest")
        end = parse_limit(given.texts, "ending", "latest")
        check_batch_limits(start, end)
        snapshot = given.text("snapshot")
        ending = [name for name in _ENDINGS if name in given.texts]
        if snapshot is not None and ending:
            raise UsageError(
                f"expected no option {ending[0]} beside snapshot, which says where every partition "
                f"ends; leave one of them out"
            )
        return _assemble(given, start, end, snapshot)

    @classmethod
    def stream(cls, options: Mapping[str, str]) -> SourceOptions:
        """Options of a streaming query. Raises UsageError."""
        given = _Given(options)
        for name in (*_ENDINGS, "snapshot"):
            if name in given.texts:
                raise UsageError(
                    f"expected no option {name} in a streaming query, which has no end, found "
                    f"{given.texts[name]!r}; leave it out, or stop with Trigger.AvailableNow"
                )
        start = parse_limit(given.texts, "starting", "latest")
        return _assemble(given, start, parse_limit({}, "ending", "latest"), None)


def asked_columns(options: Mapping[str, str]) -> list[str]:
    """Columns of a read without a schema of the user's. Raises UsageError."""
    given = _Given(options)
    return default_columns(
        headers=given.flag("includeHeaders", default=False),
        leader_epoch=given.flag("includeLeaderEpoch", default=False),
        corrupt_record=given.choice("mode", _MODES, _MODES[0]) == "PERMISSIVE",
    )


class _Given:
    """What the user gave, by name in lower case; keeps which names were looked at."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.texts = {name.lower(): str(text) for name, text in options.items()}
        unknown = [name for name in self.texts if name not in NAMES and not _IGNORED.match(name)]
        if unknown:
            raise UsageError(
                f"expected the options {', '.join(NAMES.values())}, found {unknown[0]!r}; correct "
                f"its spelling or leave it out"
            )

    def text(self, name: str) -> str | None:
        return self.texts.get(name.lower())

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.texts.get(name.lower(), str(default)).strip().lower()
        if text not in {"true", "false"}:
            raise UsageError(f"expected true or false for {name}, found {text!r}")
        return text == "true"

    def count(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.strip().isdecimal() or int(text) == 0:
            raise UsageError(f"expected a number > 0 for {name}, found {text!r}")
        return int(text)

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        text = self.texts.get(name.lower(), default).strip()
        for one in choices:
            if one.lower() == text.lower():
                return one
        raise UsageError(f"expected {name} to be one of {', '.join(choices)}, found {text!r}")

    def amount(self, name: str, units: Mapping[str, int], default: str, example: str) -> int:
        """A number with a unit, in the smallest one."""
        text = self.texts.get(name.lower(), default).strip().lower()
        found = re.fullmatch(r"(\d+)\s*([a-z]*)", text)
        unit = found[2] if found else "?"
        unit = unit[:-1] if unit.endswith("b") and unit[:-1] in units else unit
        if found is None or unit not in units or int(found[1]) == 0:
            raise UsageError(f"expected {example} for {name}, found {text!r}")
        return int(found[1]) * units[unit]

    def size(self, name: str, default: str) -> int:
        return self.amount(name, _SIZES, default, "a size > 0 such as 128m")


# Every option that has a meaning here: its name in lower case, and as it is written.
NAMES = {
    name.lower(): name
    for name in (
        "path", "paths", "subscribe", "subscribePattern", "assign",
        "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp",
        "startingOffsetsByTimestamp", "endingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy", "failOnDataLoss", "includeHeaders",
        "includeLeaderEpoch", "minPartitions", "maxRecordsPerPartition", "kafka.isolation.level",
        *_STREAM_ONLY,
        "snapshot", "highWatermarks", "replicas", "mode", "pushdown", "maxPartitionBytes",
        "batchRows", "checkCrcs",
    )
}  # fmt: skip


def _assemble(given: _Given, start: Limit, end: Limit, snapshot: str | None) -> SourceOptions:
    strategy = given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    minimum, maximum = given.count("minOffsetsPerTrigger"), given.count("maxOffsetsPerTrigger")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise UsageError(
            f"expected minOffsetsPerTrigger <= maxOffsetsPerTrigger, found {minimum} > {maximum}"
        )
    isolation = given.choice("kafka.isolation.level", _ISOLATIONS, Isolation.HIGH_WATERMARK.value)
    marks = given.text("highWatermarks")
    mode = given.choice("mode", _MODES, "FAILFAST")
    replicas = given.choice("replicas", ("highest", "verify"), "highest")
    limited = "maxBytesPerTrigger" if given.text("maxBytesPerTrigger") is not None else None
    return SourceOptions(
        paths=_paths(given),
        selection=_selection(given),
        start=start,
        end=end,
        strategy_latest=strategy == "latest",
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        isolation=_ISOLATIONS[isolation],
        snapshot=snapshot,
        high_watermarks=parse_partition_numbers("highWatermarks", marks) if marks else {},
        replicas="verify" if replicas == "verify" else "highest",
        include_headers=given.flag("includeHeaders", default=False),
        include_leader_epoch=given.flag("includeLeaderEpoch", default=False),
        mode=next(one for one in _MODES if one == mode),
        pushdown=given.flag("pushdown", default=False),
        partitions_min=given.count("minPartitions"),
        partition_records_max=given.count("maxRecordsPerPartition"),
        partition_bytes_max=given.size("maxPartitionBytes", "128m"),
        batch_rows=given.count("batchRows") or BATCH_ROWS,
        check_crc=given.flag("checkCrcs", default=True),
        trigger_offsets_max=maximum,
        trigger_offsets_min=minimum,
        trigger_delay_ms_max=given.amount(
            "maxTriggerDelay", _DURATIONS_MS, "15m", "a duration > 0 such as 15m"
        ),
        trigger_bytes_max=given.size(limited, "") if limited else None,
    )


def _paths(given: _Given) -> tuple[str, ...]:
    listed = given.text("paths")
    paths = parse_json("paths", listed) if listed is not None else []
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise UsageError(f"expected paths to be a JSON list of strings, found {listed!r}")
    single = given.text("path")
    if single is not None:
        paths = [*paths, *(json.loads(single) if single.startswith('["') else [single])]
    if not paths:
        raise UsageError(
            "expected a path, found none; use load(path) with a log or partition directory, in SQL "
            "CREATE TEMPORARY VIEW ... USING replog OPTIONS (path '...')"
        )
    return tuple(paths)


def _selection(given: _Given) -> Selection | None:
    named = [name for name in _STRATEGIES if name in given.texts]
    if len(named) > 1:
        raise UsageError(
            f"expected one of subscribe, subscribePattern and assign, found "
            f"{' and '.join(NAMES[name] for name in named)}"
        )
    if not named:
        return None
    text = given.texts[named[0]].strip()
    if named[0] == "subscribe":
        topics = tuple(topic.strip() for topic in text.split(",") if topic.strip())
        if not topics:
            raise UsageError(
                f"expected topics with commas between them in subscribe, found {text!r}"
            )
        return Topics(topics)
    if named[0] == "subscribepattern":
        try:
            re.compile(text)
        except re.error as error:
            raise UsageError(
                f"expected subscribePattern to be a regular expression, found {text!r}: {error}"
            ) from error
        if not text:
            raise UsageError("expected subscribePattern to be a regular expression, found nothing")
        return Pattern(text)
    return Assigned(_assigned(text))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    topics = parse_json("assign", text)
    lists = list(topics.values()) if isinstance(topics, dict) else []
    if not lists or not all(
        isinstance(numbers, list) and numbers and all(type(one) is int for one in numbers)
        for numbers in lists
    ):
        raise UsageError(f'expected assign to be JSON such as {{"topic":[0,1]}}, found {text!r}')
    return tuple(
        TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers
    )
