class BatchSet:
    count: int
    length_bytes: int
    max_timestamp: int
