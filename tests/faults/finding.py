"""What a run says that has found something."""

from __future__ import annotations


class Finding(Exception):  # noqa: N818 - it is no error of the run's
    """kind: a word for what is wrong; runs are made smaller while it stays the same."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


def require(holds: object, kind: str, message: str) -> None:
    if not holds:
        raise Finding(kind, message)
