"""Kinds of findings that are known and not mended yet; each goes when its mend has landed."""

from __future__ import annotations

KNOWN: dict[str, str] = {
    "lost": "renames of a retention or a restart that persist out of order (row 7)",
    "reopen": "likewise",
    "refused": "likewise",
}
