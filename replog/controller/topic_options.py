"""A topic's options as Kafka's names and texts: what config records hold, and which are legal."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping

from replog.config import LogConfig
from replog.errors import UsageError
from replog.registrations import TopicConfig

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"
THROTTLED_LEADERS = "leader.replication.throttled.replicas"
THROTTLED_FOLLOWERS = "follower.replication.throttled.replicas"

_LOG_OPTIONS = {
    field.name.replace("_", "."): field.name for field in dataclasses.fields(LogConfig)
} | {"internal.segment.bytes": "segment_bytes"}
_OWN = frozenset({MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION, THROTTLED_LEADERS, THROTTLED_FOLLOWERS})
_DEFAULT = TopicConfig()
_FLOOR_MAX = 2**31 - 1
OPTION_LENGTH_MAX = 2**15 - 1
"""Characters of one option's text, as Kafka has it."""
_THROTTLED = re.compile(r"\*|none|[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*|")


def options_of(config: TopicConfig) -> dict[str, str]:
    """The options that differ from the defaults."""
    options: dict[str, str] = {}
    if config.min_insync_replicas != _DEFAULT.min_insync_replicas:
        options[MIN_INSYNC_REPLICAS] = str(config.min_insync_replicas)
    if config.unclean_leader_election_enable:
        options[UNCLEAN_ELECTION] = "true"
    if config.log != _DEFAULT.log:
        for field in dataclasses.fields(LogConfig):
            found = getattr(config.log, field.name)
            if found != field.default:
                options[field.name.replace("_", ".")] = str(found)
    return options


def config_from(options: Mapping[str, str]) -> TopicConfig:
    """The options as values. Raises UsageError for one that cannot be."""
    for name, text in options.items():
        if len(text) > OPTION_LENGTH_MAX:
            raise UsageError(
                f"expected an option of at most {OPTION_LENGTH_MAX} characters, found {name} with "
                f"{len(text)}",
                argument=name,
            )
    for name in (THROTTLED_LEADERS, THROTTLED_FOLLOWERS):
        if name in options and not _THROTTLED.fullmatch(options[name]):
            raise UsageError(
                f"expected {name} to be * or a list partition:broker,partition:broker,..., found "
                f"{options[name]!r}",
                argument=name,
            )
    log_options = {name: text for name, text in options.items() if name not in _OWN}
    for name in log_options:
        if name not in _LOG_OPTIONS:
            raise UsageError(
                f"expected a topic option, found {name!r}; known are "
                f"{', '.join(sorted(_OWN | _LOG_OPTIONS.keys()))}",
                argument=name,
            )
    return TopicConfig(
        min_insync_replicas=_floor(options.get(MIN_INSYNC_REPLICAS, "1")),
        unclean_leader_election_enable=_truth(UNCLEAN_ELECTION, options),
        log=LogConfig.from_kafka(log_options) if log_options else _DEFAULT.log,
    )


def known_config_from(options: Mapping[str, str]) -> TopicConfig:
    """Likewise, but what cannot be is left out: another version of the controller wrote it.

    Equal options share one value: a log that is replayed names few different ones, many times.
    """
    return _known_config(tuple(options.items())) if options else _DEFAULT


@functools.lru_cache(maxsize=1024)
def _known_config(named: tuple[tuple[str, str], ...]) -> TopicConfig:
    options = dict(named)
    try:
        return config_from(options)
    except UsageError:
        kept: dict[str, str] = {}
        for name, text in options.items():
            try:
                config_from({**kept, name: text})
            except UsageError:
                continue
            kept[name] = text
        return config_from(kept)


def _floor(text: str) -> int:
    floor = natural_from(text)
    if floor is None or not 1 <= floor <= _FLOOR_MAX:
        raise UsageError(
            f"expected {MIN_INSYNC_REPLICAS} to be an integer from 1 to {_FLOOR_MAX}, found "
            f"{text!r}",
            argument=MIN_INSYNC_REPLICAS,
        )
    return floor


def natural_from(text: str) -> int | None:
    """A whole number in ASCII digits that 64 bits can hold; None for any other text."""
    if not text.isascii() or not text.isdigit() or len(text) > len(str(2**63 - 1)):
        return None
    return int(text)


def _truth(name: str, options: Mapping[str, str]) -> bool:
    text = options.get(name, "false").lower()
    if text not in {"true", "false"}:
        raise UsageError(f"expected {name} to be true or false, found {text!r}", argument=name)
    return text == "true"
