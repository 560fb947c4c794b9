"""A voter that does not know what it has promised, since its disk was wiped or replaced.

It may have given its vote in an epoch to come, or vouched for records that it has no more. So it
neither votes nor counts, and follows as an observer does, until it can promise nothing that it has
promised otherwise before:

- every other voter has been heard of since it came back: who was elected, or asks to be, in an
  epoch that it may have voted in has that epoch on disk, and has told it;
- it follows the leader of the latest of these epochs, and has all that is committed there.

Nothing of it is written before: a crash meanwhile begins it anew. (Kafka's voter would have another
directory id, and be a stranger until an operator adds it, KIP-853.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.controller.quorum.incidents import PromisesForgotten, VotesAgain
from replog.controller.quorum.messages import QuorumFetchRequest
from replog.controller.quorum.roles import Follower
from replog.types import UNKNOWN_OFFSET

if TYPE_CHECKING:
    from replog.controller.quorum.member_context import MemberContext


class Abstention:
    """See the module. Over for good once `ended` says so."""

    def __init__(self, context: MemberContext) -> None:
        self._context = context
        self._standing = context.standing
        self._heard: set[int] = set()

    def begin(self) -> None:
        """Tell operators."""
        member_id, others = self._standing.member_id, list(self._standing.other_voters)
        self._context.report(
            PromisesForgotten(
                message=(
                    f"expected the promises of voter {member_id} beside its log, found none, "
                    f"though its cluster is not new: its disk was wiped or replaced. It votes and "
                    f"counts again when it has heard of each of {others} and has all that is "
                    f"committed"
                )
            )
        )

    def heard_of(self, voter_id: int) -> None:
        """It has answered, with its epoch."""
        self._heard.add(voter_id)

    def send_due(self, now_ms: int) -> None:
        """Ask those that have not been heard of; whatever they answer tells their epoch."""
        context, log = self._context, self._context.log
        for voter_id in self._standing.other_voters:
            if voter_id not in self._heard and context.requests.ready(voter_id, now_ms):
                ask = QuorumFetchRequest(
                    replica_id=self._standing.member_id,
                    current_leader_epoch=self._standing.role.leader_epoch,
                    fetch_offset=log.log_end_offset,
                    last_fetched_epoch=log.last_epoch,
                    wait_ms_max=0,
                    counts=False,
                    directory_id=context.directory_id,
                )
                context.send(voter_id, ask, now_ms)

    def ended(self, leader_high_watermark: int, now_ms: int) -> bool:
        """Whether it is over; then the member is a voter. `leader_high_watermark`: as told last."""
        role, context = self._standing.role, self._context
        if (
            not isinstance(role, Follower)
            or not role.in_touch
            or leader_high_watermark == UNKNOWN_OFFSET
            or context.log.log_end_offset < leader_high_watermark
            or not self._heard.issuperset(self._standing.other_voters)
        ):
            return False
        self._standing.vote_again(now_ms)
        context.report(VotesAgain(leader_epoch=role.leader_epoch))
        return True
