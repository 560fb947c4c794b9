"""The in-sync set as states: committed, or with one change that the controller has yet to decide.

While a change is in flight the controller may have decided it already, so the high watermark is
held to the maximal set: the union of what is and what may be (KIP-497). A committed set is what the
controller last told us.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from replog.messages import IsrProposal


@dataclasses.dataclass(frozen=True, slots=True)
class CommittedIsr:
    """Nothing is in flight."""

    isr: tuple[int, ...]
    partition_epoch: int

    @property
    def maximal(self) -> tuple[int, ...]:
        return self.isr

    @property
    def committed(self) -> CommittedIsr:
        return self


@dataclasses.dataclass(frozen=True, slots=True)
class PendingExpand:
    """`replica_id` is to join: it counts from now on, since it may be in any moment."""

    committed: CommittedIsr
    replica_id: int
    proposal: IsrProposal

    @property
    def isr(self) -> tuple[int, ...]:
        return self.committed.isr

    @property
    def maximal(self) -> tuple[int, ...]:
        return (*self.committed.isr, self.replica_id)

    @property
    def wanted(self) -> tuple[int, ...]:
        return (*self.committed.isr, self.replica_id)


@dataclasses.dataclass(frozen=True, slots=True)
class PendingShrink:
    """`replica_ids` are to leave: they count until the controller has said so."""

    committed: CommittedIsr
    replica_ids: tuple[int, ...]
    proposal: IsrProposal

    @property
    def isr(self) -> tuple[int, ...]:
        return self.committed.isr

    @property
    def maximal(self) -> tuple[int, ...]:
        return self.committed.isr

    @property
    def wanted(self) -> tuple[int, ...]:
        return tuple(
            replica_id for replica_id in self.committed.isr if replica_id not in self.replica_ids
        )


PendingIsr: TypeAlias = PendingExpand | PendingShrink
IsrState: TypeAlias = CommittedIsr | PendingExpand | PendingShrink
