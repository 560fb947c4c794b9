"""The native engine: bytes of record batches and segments. Each module says what it owns."""
