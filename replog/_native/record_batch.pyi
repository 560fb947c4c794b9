from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

HEADER_DTYPE: np.dtype[np.void]

class Scan:
    headers: npt.NDArray[Any]
    end: int
    outcome: int
    problem: str | None
    def __init__(self, headers: npt.NDArray[Any], end: int, outcome: int) -> None: ...

def scan(
    buffer: Buffer,
    *,
    start: int = 0,
    stop: int | None = None,
    check_crc: bool = True,
    position: int = 0,
    limit: int = 1_000_000,
    lenient: bool = False,
) -> Scan: ...
