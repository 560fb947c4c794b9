"""Leaders' wishes for their in-sync sets on their way to the controller (KIP-497).

One request is in flight for the whole broker; proposals gather meanwhile. It is sent again until it
is answered: the controller compares partition epochs, so a proposal takes effect once at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.messages import AlterPartitionRequest, AlterPartitionResponse, ErrorCode
from replog.replication.effects import SendToController

if TYPE_CHECKING:
    from collections.abc import Callable

    from replog.messages import IsrDecision, IsrProposal
    from replog.replication.deadlines import Timer
    from replog.replication.host_context import HostContext
    from replog.types import TopicPartition

    Decide = Callable[[IsrProposal, IsrDecision, int], bool]

RESEND_MS = 50


class ProposalQueue:
    """The proposals of one broker; `decide` hears each decision, and says whether to try again."""

    def __init__(self, context: HostContext, decide: Decide) -> None:
        self._context = context
        self._decide = decide
        self.waiting: dict[TopicPartition, IsrProposal] = {}
        """Not sent yet, or to be sent again."""
        self._sent: tuple[IsrProposal, ...] = ()
        self.request_id: int | None = None
        """Of the request in flight."""
        self._timer: Timer | None = None
        """The pause before the next request, or the patience with the one in flight."""

    def submit(self, proposal: IsrProposal) -> None:
        """Queue it; it takes the place of an older one of the same partition."""
        self.waiting[proposal.topic_partition] = proposal

    def withdraw(self, topic_partition: TopicPartition) -> None:
        """It is out of date. What is in flight may still be decided; nobody will hear of it."""
        self.waiting.pop(topic_partition, None)
        if self._sent:
            self._sent = tuple(one for one in self._sent if one.topic_partition != topic_partition)

    def maybe_send(self, now_ms: int) -> None:
        """Send what waits, unless a request is in flight or a pause goes on."""
        if not self.waiting or self.request_id is not None or self._timer is not None:
            return
        self._sent = tuple(self.waiting.values())
        self.waiting.clear()
        context = self._context
        self.request_id = next(context.request_ids)
        self._timer = context.deadlines.schedule(
            now_ms + context.options.request_timeout_ms, self._fail
        )
        context.emit(
            SendToController(
                self.request_id,
                AlterPartitionRequest(
                    broker_id=context.cluster.broker_id,
                    broker_epoch=context.cluster.broker_epoch,
                    proposals=self._sent,
                ),
            )
        )

    def answered(self, response: object, now_ms: int) -> None:
        """Take in the answer to the request in flight."""
        if not isinstance(response, AlterPartitionResponse) or response.error is not ErrorCode.NONE:
            self._fail(now_ms)
            return
        sent = self._take_sent()
        decisions = {decision.topic_partition: decision for decision in response.decisions}
        again = False
        for proposal in sent:
            decision = decisions.get(proposal.topic_partition)
            if decision is None or self._decide(proposal, decision, now_ms):
                again = True
                self.waiting.setdefault(proposal.topic_partition, proposal)
        if again:
            self._pause(now_ms)

    def failed(self, request_id: int, now_ms: int) -> bool:
        """The request in flight got no answer; False: that was another's."""
        if request_id != self.request_id:
            return False
        self._fail(now_ms)
        return True

    def _fail(self, now_ms: int) -> None:
        for proposal in self._take_sent():
            self.waiting.setdefault(proposal.topic_partition, proposal)
        self._pause(now_ms)

    def _take_sent(self) -> tuple[IsrProposal, ...]:
        self._context.deadlines.cancel(self._timer)
        self._timer = self.request_id = None
        sent, self._sent = self._sent, ()
        return sent

    def _pause(self, now_ms: int) -> None:
        self._timer = self._context.deadlines.schedule(now_ms + RESEND_MS, self._resume)

    def _resume(self, now_ms: int) -> None:
        self._timer = None
