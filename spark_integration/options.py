"""Options of the data source `replog`; names without regard to case, as Spark gives them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

from replog.errors import UsageError
from replog.types import Isolation

MIB = 1024 * 1024
_SIZES = {"": 1, "b": 1, "k": 1024, "m": MIB, "g": 1024 * MIB}
# What Spark's Kafka source has and would change the answer: refused, so that it is not ignored.
_REFUSED = (
    "assign",
    "subscribe",
    "subscribepattern",
    "startingoffsets",
    "endingoffsets",
    "startingtimestamp",
    "endingtimestamp",
    "startingoffsetsbytimestamp",
    "endingoffsetsbytimestamp",
)


@dataclasses.dataclass(frozen=True, slots=True)
class ReadOptions:
    """paths: directories to read. partition_bytes_max: file bytes of a Spark partition, about.

    batch_rows: most rows of an Arrow batch. check_crc: check every batch's CRC-32C.
    """

    paths: tuple[str, ...]
    isolation: Isolation = Isolation.HIGH_WATERMARK
    partition_bytes_max: int = 128 * MIB
    batch_rows: int = 32768
    check_crc: bool = True

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Read what `load` and `option` gave. Raises UsageError."""
        given = {name.lower(): text for name, text in options.items()}
        for name in _REFUSED:
            if name in given:
                raise UsageError(
                    f"expected no option {name}, which the source replog does not have, found "
                    f"{given[name]!r}; filter on the column instead"
                )
        paths = tuple(json.loads(given["paths"])) if "paths" in given else ()
        paths += (given["path"],) if "path" in given else ()
        if not paths:
            raise UsageError(
                "expected a path, found none; use load(path) with a log or partition directory"
            )
        level = given.get("kafka.isolation.level", Isolation.HIGH_WATERMARK.value)
        levels = {one.value: one for one in Isolation}
        if level not in levels:
            raise UsageError(
                f"expected kafka.isolation.level to be one of {', '.join(levels)}, found {level!r}"
            )
        return cls(
            tuple(path.removeprefix("file://") for path in paths),
            levels[level],
            _size(given, "maxpartitionbytes", "128m"),
            _size(given, "batchrows", "32768"),
            _flag(given, "checkcrcs", "true"),
        )


def _size(given: Mapping[str, str], name: str, default: str) -> int:
    text = given.get(name, default).strip().lower()
    digits = text.rstrip("bkmg")
    unit = (
        text[len(digits) :].removesuffix("b")
        if len(text) - len(digits) > 1
        else text[len(digits) :]
    )
    if not digits.isdecimal() or unit not in _SIZES or int(digits) == 0:
        raise UsageError(f"expected a size > 0 such as 128m for {name}, found {text!r}")
    return int(digits) * _SIZES[unit]


def _flag(given: Mapping[str, str], name: str, default: str) -> bool:
    text = given.get(name, default).strip().lower()
    if text not in {"true", "false"}:
        raise UsageError(f"expected true or false for {name}, found {text!r}")
    return text == "true"
