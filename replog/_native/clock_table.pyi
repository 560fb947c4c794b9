class ClockTable:
    count: int
    capacity: int
    limit: int
    def __init__(self, capacity: int) -> None: ...
