"""What producers and consumers need of a cluster: who leads, and a way to ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from replog.messages import PartitionRequest
    from replog.registrations import PartitionRegistration
    from replog.types import TopicPartition

    Answered = Callable[[Any], None]


class ClusterConnection(Protocol):
    """One cluster as its clients see it. Not for use outside its loop's thread."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    def wall_ms(self) -> int:
        """The calendar's time, for records."""

    def partition(self, topic_partition: TopicPartition) -> PartitionRegistration:
        """What is registered. Raises UnknownTopicOrPartitionError."""

    def partition_count(self, topic: str) -> int:
        """Raises UnknownTopicOrPartitionError."""

    def reaches(self, broker_id: int) -> bool:
        """Whether anybody is there to ask: if not, nothing that is sent arrives anywhere."""

    def ask(self, broker_id: int, request: PartitionRequest, answered: Answered) -> int:
        """Send a request and return its id.

        `answered` is called once, never from within this call; with None if the connection breaks.
        """

    def give_up(self, request_id: int) -> None:
        """Wait for an answer no longer: `answered` will not be called."""

    def tell(self, broker_id: int, request: PartitionRequest) -> None:
        """Send what is never answered (acks=0)."""

    def on_metadata_change(self, call: Callable[[], None]) -> Callable[[], None]:
        """Call at each change until the function that is returned is called."""

    def new_producer_id(self) -> int:
        """One that no producer had before."""


async def answer_to(
    connection: ClusterConnection, broker_id: int, request: PartitionRequest
) -> Any:
    """The answer; None if the connection broke. Giving up the wait gives up the request."""
    future: asyncio.Future[Any] = connection.loop.create_future()

    def answered(response: Any) -> None:
        if not future.done():
            future.set_result(response)

    request_id = connection.ask(broker_id, request, answered)
    try:
        return await future
    except BaseException:
        connection.give_up(request_id)
        raise


async def metadata_change(connection: ClusterConnection, timeout_ms: int) -> None:
    """Return when the metadata has changed, or the time is up."""
    future: asyncio.Future[None] = connection.loop.create_future()

    def changed() -> None:
        if not future.done():
            future.set_result(None)

    unsubscribe = connection.on_metadata_change(changed)
    timer = connection.loop.call_later(timeout_ms / 1000, changed)
    try:
        await future
    finally:
        timer.cancel()
        unsubscribe()
