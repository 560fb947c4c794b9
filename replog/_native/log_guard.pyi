from types import TracebackType
from typing import Self

class LogGuard:
    path: str
    failed: bool
    closed: bool
    def __init__(self, path: str) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def refuse(self) -> None: ...
