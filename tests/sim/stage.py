"""A hand-driven cluster behind the commands of `scenarios/*.txt`.

The brokers run the production core over memory logs; nothing moves unless a command moves it. A
transcript has prose, commands (lines that begin with "> ") and under each what it printed, indented
by four spaces. Each command is a method here: its words come as strings, `name=value` as keywords.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator

from replog.messages import (
    Acks,
    AlterPartitionRequest,
    DeleteRecordsRequest,
    ErrorCode,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetSpec,
)
from replog.replication.incidents import (
    Fenced,
    IsrChanged,
    LogTruncated,
    ProduceRefused,
    ReplicaFailed,
)
from tests.replication.core_cluster import CONTROLLER, PARTITION, TOPIC_ID, CoreCluster, Envelope
from tests.replication.memory_log import MemoryLog


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",") if word)


class Stage:
    """See the module."""

    def __init__(self) -> None:
        self.cluster = CoreCluster({}, decides=False, alive=False)
        self.graves: dict[int, dict] = {}
        self._produces: dict[int, int] = {}
        """Ids of produce requests -> the number that the transcript gives them."""
        self._seen: dict[int, int] = {}

    def run(self, line: str) -> Iterator[str]:
        """Carry out one command; yields what it prints."""
        words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        command: Callable[..., Iterator[str]] = getattr(self, words[0].replace("-", "_"))
        yield from command(*[word for word in words[1:] if "=" not in word], **options)
        yield from self._answers()
        yield from self._incidents()

    # -- setting

    def brokers(self, *ids: str, lag="30000", wait="500", backoff="1000") -> Iterator[str]:
        """Brokers with an empty log of orders-0 each."""
        self.cluster = CoreCluster(
            {int(one): MemoryLog() for one in ids},
            decides=False,
            replica_lag_time_max_ms=int(lag),
            replica_fetch_wait_max_ms=int(wait),
            replica_fetch_backoff_ms=int(backoff),
        )
        yield f"brokers {', '.join(ids)}; all is quiet"

    def log(self, broker: str, *epochs: str, hw="0", start="0", payload="") -> Iterator[str]:
        """Give a broker that has not played any role this log: EPOCHxCOUNT ..."""
        written = [
            int(epoch)
            for part in epochs
            for epoch, _, count in (part.partition("x"),)
            for _ in range(int(count or 1))
        ]
        log = MemoryLog(written, start=int(start), payload=payload, high_watermark=int(hw))
        self.cluster.brokers[int(broker)].logs[PARTITION] = log
        yield self._line(int(broker))

    def lead(
        self, leader: str, epoch: str, isr: str, to=None, min_isr=None, unclean="no", flush=None
    ):
        """The controller's word: who leads, in which epoch, who is in sync."""
        self.cluster.lead(
            None if leader == "none" else int(leader),
            int(epoch),
            numbers(isr),
            to=None if to is None else numbers(to),
            min_insync_replicas=None if min_isr is None else int(min_isr),
            unclean=unclean == "yes",
            flush_mode=flush,
        )
        told = "everybody" if to is None else to
        yield f"{told} hears: {leader} leads epoch {epoch}, in sync are {isr}"

    def hear(self, broker: str) -> Iterator[str]:
        """A broker learns what is registered now."""
        self.cluster.publish(
            partitions=tuple(self.cluster.registrations.values()), to=(int(broker),)
        )
        registration = self.cluster.registrations[PARTITION]
        yield (
            f"{broker} hears: {registration.leader_id} leads epoch {registration.leader_epoch}, "
            f"in sync are {','.join(map(str, registration.isr))}"
        )

    # -- what happens to brokers

    def kill(self, broker: str, lose="0", tell="yes") -> Iterator[str]:
        """Its process ends; `lose` records at its end were not synced, and the power went too."""
        dead = self.cluster.kill(int(broker), tell=tell == "yes")
        log = dead.logs[PARTITION]
        if int(lose):
            log.high_watermark = min(log.high_watermark, log.log_end_offset - int(lose))
            log.truncate_to(log.log_end_offset - int(lose))
        self.graves[int(broker)] = dead.logs
        yield f"{broker} is dead: {log_line(log)}"

    def start(self, broker: str, hear="yes", hw=None) -> Iterator[str]:
        """A new process over the same log; the others learn of its new broker epoch."""
        logs = self.graves.pop(int(broker))
        log = logs[PARTITION]
        if hw is not None:
            log.high_watermark = int(hw)
        self._seen.pop(int(broker), None)
        started = self.cluster.start(int(broker), logs)
        yield f"{broker} runs with broker epoch {started.host.broker_epoch}: {log_line(log)}"
        self.cluster.publish(brokers=tuple(self.cluster.registered.values()))
        if hear == "yes":
            yield from self.hear(broker)

    def fence(self, broker: str) -> Iterator[str]:
        self.cluster.register(int(broker), fenced=True)
        yield f"everybody hears: {broker} is fenced"

    def unfence(self, broker: str) -> Iterator[str]:
        self.cluster.register(int(broker), fenced=False)
        yield f"everybody hears: {broker} is not fenced any more"

    def wait(self, ms: str) -> Iterator[str]:
        """Time passes, all at once, and everybody does what is due."""
        self.cluster.tick(int(ms))
        yield f"it is {self.cluster.now_ms} ms"

    # -- messages

    def fetch(self, broker: str) -> Iterator[str]:
        """Deliver a follower's request and its leader's answer, as far as there are any."""
        follower = int(broker)
        moved = False
        for wanted in (
            lambda one: one.to == follower and one.is_response and one.sender != CONTROLLER,
            lambda one: one.sender == follower and not one.is_response and one.to != CONTROLLER,
            lambda one: one.to == follower and one.is_response and one.sender != CONTROLLER,
        ):
            envelope = self._deliver(wanted)
            if envelope is None:
                continue
            moved = True
            yield self._said(envelope)
            if envelope.is_response:
                break
        if not moved:
            yield f"{broker} waits for an answer"

    def lose(self, broker: str) -> Iterator[str]:
        """What is on its way from and to a broker is lost."""
        lost = [one for one in self.cluster.queue if int(broker) in {one.sender, one.to}]
        self.cluster.queue = collections.deque(one for one in self.cluster.queue if one not in lost)
        yield f"{len(lost)} messages are lost"

    def settle(self) -> Iterator[str]:
        """Deliver everything; the controller grants what is proposed."""
        self.cluster.decides = True
        self.cluster.settle()
        self.cluster.decides = False
        yield from self.state()

    def propose(self, broker: str, answer="yes", error=None, publish="yes") -> Iterator[str]:
        """The controller gets a leader's proposal, decides; the leader hears it if `answer`."""
        found = self._deliver(
            lambda one: one.sender == int(broker) and isinstance(one.body, AlterPartitionRequest)
        )
        if found is None:
            yield f"{broker} proposes nothing"
            return
        for proposal in found.body.proposals:
            isr = ",".join(str(replica) for replica, _ in proposal.isr)
            yield f"{broker} proposes {isr} (partition epoch {proposal.partition_epoch})"
        refusal = ErrorCode.NONE if error is None else ErrorCode[error]
        self.cluster.decide(found, refusal, publish=publish == "yes")
        registration = self.cluster.registrations[PARTITION]
        decided = self.cluster.queue[-1].body.decisions[0].error
        yield (
            f"the controller answers {decided.name}; registered is "
            f"{','.join(map(str, registration.isr))}"
        )
        if answer == "yes":
            self._deliver(lambda one: one.to == int(broker) and one.sender == CONTROLLER)

    # -- clients

    def produce(
        self, broker: str, *values: str, acks="all", timeout="30000", n=None
    ) -> Iterator[str]:
        """Ask a broker to append; `n` records where their values do not matter."""
        if n is not None:
            end = self.cluster.log(int(broker)).log_end_offset
            values = tuple(f"r{end + number}" for number in range(int(n)))
        wanted = {"all": Acks.ALL, "1": Acks.LEADER, "0": Acks.NONE}[acks]
        request_id = self.cluster.produce(
            int(broker), *values, acks=wanted, timeout_ms=int(timeout)
        )
        number = len(self._produces) + 1
        self._produces[request_id] = number
        yield f"produce {number}: {len(values)} records to {broker}, acks={acks}"

    def consume(self, broker: str, at="0") -> Iterator[str]:
        """A consumer's fetch that does not wait."""
        answer = self.cluster.consume(int(broker), int(at))
        if answer.error is not ErrorCode.NONE:
            yield f"{broker} answers {answer.error.name}"
        elif not answer.records:
            yield f"{broker} gives nothing at {at} (high watermark {answer.high_watermark})"
        else:
            got = " ".join(f"{one.offset}:{one.payload}" for one in answer.records)
            yield f"{broker} gives {got} (high watermark {answer.high_watermark})"

    def latest(self, broker: str) -> Iterator[str]:
        """ListOffsets of a consumer."""
        answer = self.cluster.answer(
            int(broker),
            ListOffsetsRequest(
                topic_partition=PARTITION, topic_id=TOPIC_ID, timestamp=OffsetSpec.LATEST
            ),
        )
        yield f"{broker} answers {answer.error.name}, offset {answer.offset}"

    def delete_records(self, broker: str, below: str) -> Iterator[str]:
        self.cluster.ask(
            int(broker), DeleteRecordsRequest(partitions=((PARTITION, TOPIC_ID, int(below)),))
        )
        yield f"{broker} deletes what lies below {below}"

    def claim(self, leader: str, replica: str, offset: str, epoch=None, last=None) -> Iterator[str]:
        """A fetch made by hand in a follower's name; the leader counts it as any other."""
        answer = self.cluster.fetch(
            int(leader),
            int(replica),
            int(offset),
            epoch=None if epoch is None else int(epoch),
            last_fetched_epoch=None if last is None else int(last),
        )
        yield f"{leader} answers {fetched_text(answer)}"

    # -- looking

    def state(self) -> Iterator[str]:
        """Every running broker's log and role."""
        for broker_id in sorted(self.cluster.brokers):
            yield self._line(broker_id)

    def why(self, broker: str, offset: str) -> Iterator[str]:
        """Who holds an offset back."""
        found = self.cluster.brokers[int(broker)].host.why_uncommitted(PARTITION, int(offset))
        if found is None:
            yield f"{offset} is committed, or not there"
            return
        behind = ", ".join(
            f"{one.replica_id} (at {one.log_end_offset})" for one in found.held_back_by
        )
        floor = f", below {found.min_insync_replicas} in sync" if found.under_min_isr else ""
        yield f"{offset} is held back by {behind or 'nobody'}{floor}"

    def _deliver(self, wanted: Callable[[Envelope], bool]) -> Envelope | None:
        queue = self.cluster.queue
        for envelope in queue:
            if wanted(envelope):
                queue.remove(envelope)
                queue.appendleft(envelope)
                return self.cluster.deliver_one()
        return None

    def _said(self, envelope: Envelope) -> str:
        body, sender, to = envelope.body, envelope.sender, envelope.to
        if isinstance(body, FetchRequest):
            asked = ", ".join(
                f"{one.fetch_offset} (last epoch {one.last_fetched_epoch})"
                for one in body.partitions
            )
            return f"{sender} asks {to} for {asked or 'what is new'}"
        if isinstance(body, FetchResponse):
            if body.error is not ErrorCode.NONE:
                return f"{sender} answers {to}: {body.error.name}"
            told = ", ".join(fetched_text(one) for one in body.partitions)
            return f"{sender} answers {to}: {told or 'nothing new'}"
        if isinstance(body, ListOffsetsRequest):
            return f"{sender} asks {to} for its {OffsetSpec(body.timestamp).name.lower()} offset"
        if isinstance(body, ListOffsetsResponse):
            return f"{sender} answers {to}: offset {body.offset}"
        return f"{sender} to {to}: {body}"

    def _answers(self) -> Iterator[str]:
        """Produces that were answered by this command."""
        for request_id in [one for one in self._produces if one in self.cluster.answers]:
            number = self._produces.pop(request_id)
            self._produces[-number] = number
            answer = self.cluster.answers.pop(request_id).partitions[0]
            if answer.error is ErrorCode.NONE:
                met = "" if answer.durability is None else f" {answer.durability.value}"
                where = f"[{answer.base_offset}, {answer.last_offset + 1})"
                yield (
                    f"produce {number} is acknowledged:{met} at {where} in epoch "
                    f"{answer.leader_epoch}"
                )
            else:
                yield f"produce {number} is refused: {answer.error.name}"

    def _incidents(self) -> Iterator[str]:
        """What brokers reported during this command."""
        for broker_id, broker in sorted(self.cluster.brokers.items()):
            seen = self._seen.get(broker_id, 0)
            self._seen[broker_id] = len(broker.incidents)
            for incident in broker.incidents[seen:]:
                text = incident_text(incident)
                if text is not None:
                    yield f"{broker_id} reports {text}"

    def _line(self, broker_id: int) -> str:
        leader = self.cluster.leader(broker_id)
        follower = self.cluster.follower(broker_id)
        role = "no role"
        if leader is not None:
            isr = ",".join(map(str, leader.isr.isr))
            role = f"leads epoch {leader.leader_epoch}, in sync {isr}"
        elif follower is not None:
            role = f"follows {follower.leader_id} in epoch {follower.leader_epoch}"
            if follower.failure is not None:
                role += ", has failed"
        return f"{broker_id} {role}: {log_line(self.cluster.log(broker_id))}"


def log_line(log: MemoryLog) -> str:
    epochs = " ".join(f"{epoch}@{start}" for epoch, start in log.epoch_entries) or "none"
    return (
        f"[{log.log_start_offset}, {log.log_end_offset}) high watermark {log.high_watermark} "
        f"epochs {epochs}"
    )


def fetched_text(fetched) -> str:
    if fetched.error is not ErrorCode.NONE:
        return fetched.error.name
    if fetched.diverging_epoch is not None:
        return "epoch {} ends at {}".format(*fetched.diverging_epoch)
    records = fetched.records
    if not records:
        return f"no records, high watermark {fetched.high_watermark}"
    first, last = records[0].offset, records[-1].offset
    return f"records [{first}, {last + 1}), high watermark {fetched.high_watermark}"


def incident_text(incident) -> str | None:
    if isinstance(incident, LogTruncated):
        return f"a cut from {incident.old_end_offset} to {incident.new_end_offset}"
    if isinstance(incident, IsrChanged):
        before = ",".join(map(str, incident.before))
        after = ",".join(map(str, incident.after))
        error = "" if incident.error is None else f" ({incident.error.name})"
        return f"in sync {before} -> {after} {incident.stage.value}{error}: {incident.cause.value}"
    if isinstance(incident, Fenced):
        return f"{incident.error.name}: epoch {incident.found_epoch} is not {incident.leader_epoch}"
    if isinstance(incident, ProduceRefused):
        return f"a refused produce: {incident.error.name}"
    if isinstance(incident, ReplicaFailed):
        return f"a failed replica: {incident.message}"
    return None
