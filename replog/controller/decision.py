"""What one step of the controller decides: records, gathered into one atomic batch.

Each record is replayed into the image as it is written, so that the next decision of the same step
sees it. Nothing is written before all that is asked has been checked, so a step never half decides.
"""

from __future__ import annotations

from typing import Any

from replog.controller.incidents import Incident
from replog.controller.metadata_image import MetadataImage
from replog.controller.state_journal import StateJournal


class Decision:
    """The place where metadata changes; one for the life of a controller, emptied by each step.

    Invariant: `next_offset` is where the next record will stand in the metadata log.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.journal = StateJournal()
        self.records: list[Any] = []
        self.incidents: list[Incident] = []
        self.now_ms = 0
        """Of the step."""

    @property
    def next_offset(self) -> int:
        """The offset of the record that is written next; a new broker's epoch."""
        return self.image.end_offset

    def write(self, record: Any) -> None:
        """Decide this."""
        self.replay(record, self.image.end_offset, self.now_ms)
        self.records.append(record)

    def replay(self, record: Any, offset: int, now_ms: int | None) -> None:
        """Take a record as decided, by this controller or, None, by one before it."""
        self.journal.before(self.image, record, now_ms)
        self.image.apply(record, offset)
        self.journal.after(self.image, record, now_ms)

    def report(self, incident: Incident) -> None:
        """Tell operators, once it is committed."""
        self.incidents.append(incident)
