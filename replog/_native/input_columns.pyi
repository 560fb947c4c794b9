"""Nothing here has a Python face; record_encoder.encode() is it."""

from typing import final

@final
class Column: ...

@final
class Rows: ...
