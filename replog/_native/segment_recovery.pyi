class RecoveryReport:
    clean: bool
    checked_bytes: int
    checked_segments: int
    cut_bytes: int
    problem: str | None
    kept: list[str]
    removed: list[str]
    holes: bool
    def __init__(self, clean: bool) -> None: ...

class Rules: ...
