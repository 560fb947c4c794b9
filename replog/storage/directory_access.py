"""From the path and options of a caller to a directory that is there, or a sentence why not."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Mapping
from typing import Any

from replog._native.arguments import flag, integer, path_of
from replog._native.mapped_file import fsync_dir, list_dir, make_dir, remove, remove_dir
from replog.config import INT_MAX, LogConfig
from replog.errors import NoSpaceError, ReplogError, StorageError, UsageError, shown

THREADS_MAX = 1024

# What another path, or another owner of it, would settle.
_OF_THE_PATH = {
    errno.EACCES,
    errno.EEXIST,
    errno.EINVAL,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}


def absolute_path(path: str | os.PathLike[str]) -> str:
    """`path` from the root. Raises UsageError for what is no path."""
    given = path_of(path)
    try:
        return os.path.abspath(given)
    except OSError as error:
        raise refused(given, error) from error


def make_directory(directory: str) -> bool:
    """See that `directory` is there, with its parents; durable on return. True if it was made.

    Raises UsageError where the path cannot be a directory of ours, NoSpaceError, StorageError.
    """
    if os.path.isdir(directory):
        return False
    missing = [directory]
    while not os.path.isdir(parent := os.path.dirname(missing[-1])) and parent != missing[-1]:
        missing.append(parent)
    made = []
    try:
        # Each name is synced before another one stands below it.
        for path in reversed(missing):
            if _make_if_missing(path):
                made.append(path)
            fsync_dir(os.path.dirname(path))
    except (OSError, ReplogError) as error:
        # Whoever tries again must find it to do, not half done.
        for path in reversed(made):
            with contextlib.suppress(OSError, ReplogError):
                remove_dir(path)
        cause = _of_the_path(error) if isinstance(error, ReplogError) else error
        if cause is not None:
            raise refused(directory, cause) from error
        raise
    return True


def _of_the_path(error: ReplogError) -> OSError | None:
    """The system's error that another path would settle; None for another one."""
    number = error.facts.get("errno")
    return OSError(number, os.strerror(number)) if number in _OF_THE_PATH else None


def _make_if_missing(path: str) -> bool:
    """Make a directory; False if another process has done so meanwhile."""
    try:
        make_dir(path)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return False
    return True


def names_in(directory: str) -> list[str]:
    """The names in `directory`. Raises UsageError, StorageError."""
    try:
        return list_dir(directory)
    except OSError as error:
        raise refused(directory, error) from error


def remove_directory(directory: str) -> None:
    """Unlink `directory` with the files in it; the caller syncs its parent."""
    for name in os.listdir(directory):
        remove(os.path.join(directory, name))
    remove_dir(directory)


def refused(directory: str, error: OSError) -> ReplogError:
    """What the system's refusal means to the caller."""
    sentence = (
        f"expected a directory that can be created, read and written at {shown(directory)}, found "
        f"the system to refuse it ({error.strerror}); give another path, or change what is there"
    )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpaceError(sentence, path=directory)
    kind = UsageError if error.errno in _OF_THE_PATH else StorageError
    return kind(sentence, path=directory)


def check_config(config: Any, name: str = "config") -> LogConfig:
    """The options themselves, or the defaults for None. Raises UsageError."""
    if config is None:
        return LogConfig()
    if not isinstance(config, LogConfig):
        raise UsageError(
            f"expected {name} to be a replog.LogConfig or None, found {shown(config)}",
            argument=name,
        )
    return config


def check_calls(now_ms: Any, on_progress: Any) -> None:
    """Raise UsageError unless the clock and, if there is one, the progress callback are calls."""
    for name, found in (("now_ms", now_ms), ("on_progress", on_progress)):
        if not callable(found) and (found is not None or name == "now_ms"):
            raise UsageError(
                f"expected {name} to be a function, found {shown(found)}", argument=name
            )


def check_directory_options(
    config: Any, configs: Any, cluster_id: Any, node_id: Any, replicated: Any, recovery_threads: Any
) -> None:
    """Raise UsageError unless the options of a log directory are what they must be."""
    check_config(config)
    if configs is not None:
        if not isinstance(configs, Mapping):
            raise UsageError(
                f"expected configs to be a mapping of topics to LogConfig, found {shown(configs)}",
                argument="configs",
            )
        for topic, options in configs.items():
            check_config(options, f"configs[{shown(topic)}]")
    if cluster_id is not None and (not isinstance(cluster_id, str) or not cluster_id):
        raise UsageError(
            f"expected cluster_id to be a str that is not empty, found {shown(cluster_id)}",
            argument="cluster_id",
        )
    if node_id is not None:
        integer(node_id, "node_id", "a log directory", high=INT_MAX)
    flag(replicated, "replicated", "a log directory")
    integer(recovery_threads, "recovery_threads", "a log directory", low=1, high=THREADS_MAX)


def check_topic_id(topic_id: Any) -> None:
    """Raise UsageError unless it is None or a UUID."""
    if topic_id is not None and not isinstance(topic_id, uuid.UUID):
        raise UsageError(
            f"expected topic_id to be a uuid.UUID or None, found {shown(topic_id)}",
            argument="topic_id",
        )
