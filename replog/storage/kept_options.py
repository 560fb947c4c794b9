"""`.replog_options`: what a lone log was opened with last, for who opens it without options.

    {"version": 0, "options": {"flush_mode": "commit"}}

Those that are not the defaults. Beside Kafka's files, which have no place for them; Kafka passes
over it. A log without the file has the defaults.
"""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from replog._native.mapped_file import read_file, replace_file
from replog.config import LogConfig
from replog.errors import CorruptFileError, UsageError

OPTIONS_FILE = ".replog_options"
VERSION = 0


def read_options(directory: str) -> LogConfig:
    """The options that are kept in `directory`; the defaults where there are none.

    Raises CorruptFileError for a file that cannot be read.
    """
    path = os.path.join(directory, OPTIONS_FILE)
    try:
        content = read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return LogConfig()
    try:
        return _config_of(**json.loads(content))
    except (ValueError, TypeError, UsageError) as error:
        raise CorruptFileError(
            f"expected the options of a log in {path}, found {type(error).__name__}: {error}; open "
            f"the log with a config, which takes their place, or remove the file",
            path=path,
        ) from error


def keep_options(directory: str, config: LogConfig) -> None:
    """Keep `config` for the next opening; durable on return. Raises NoSpaceError, StorageError."""
    path = os.path.join(directory, OPTIONS_FILE)
    options = _not_default(config)
    content = (json.dumps({"version": VERSION, "options": options}) + "\n").encode()
    try:
        if read_file(path) == content:
            return
    except FileNotFoundError:
        if not options:
            return
    replace_file(path, content)


def _config_of(version: int, options: dict[str, Any]) -> LogConfig:
    if version != VERSION:
        raise UsageError(f"expected version {VERSION}, found {version}")
    return LogConfig(**options)


def _not_default(config: LogConfig) -> dict[str, Any]:
    defaults = LogConfig()
    return {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if getattr(config, field.name) != getattr(defaults, field.name)
    }
