"""What a parameter is called in a test's name: the same in every process that collects it."""

from __future__ import annotations

import re
from typing import Any

from replog.errors import shown

# The second form is what a long value, shortened in its middle, keeps of an address.
_ADDRESS = re.compile(r" at 0x[0-9a-f.]+|\.\.\.[0-9a-f]+(?=>)")


def named(value: Any) -> str:
    """As an error message shows the value, without where it lies in memory."""
    return _ADDRESS.sub("", shown(value))
