"""Small files replaced whole, renames and directories that outlast a power cut."""

from __future__ import annotations

import json
import os
from typing import Any


def sync_path(path: str) -> None:
    """Sync a file or a directory, so that its bytes or its names outlast a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_json(path: str, content: Any) -> None:
    """Put `content` at `path`; a crash leaves the old file or the new one. Durable on return."""
    staged = f"{path}.new"
    with open(staged, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(staged, path)
    sync_path(os.path.dirname(path))


def read_json(path: str) -> Any:
    """What `replace_json` put there; None if nothing was."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def make_directories(path: str) -> None:
    """Create `path` and its missing parents; their names are durable on return."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(os.path.abspath(path))
    make_directories(parent)
    os.makedirs(path, exist_ok=True)
    sync_path(parent)
