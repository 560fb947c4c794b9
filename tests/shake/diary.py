"""What a life has done and seen: JSON lines, each written before it counts; os._exit loses none."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


class Diary:
    """Appends to the story's file. One writer at a time."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._began = time.monotonic()

    def note(self, what: str, /, **facts: Any) -> None:
        facts = {"k": what, "t": round(time.monotonic() - self._began, 3), **facts}
        os.write(self._file, (json.dumps(facts) + "\n").encode())


def entries(path: Path) -> list[dict[str, Any]]:
    """All lines; one that was being written when the process died is none."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
