"""A controller, and brokers that talk to it as real ones do over a transport that loses nothing."""

import uuid

from replog.config import ControllerOptions
from replog.controller.broker_session import BrokerSession
from replog.controller.effects import Report, Respond, SendToController
from replog.controller.events import (
    ConnectionLost,
    MetadataFollowed,
    RequestReceived,
    ResponseReceived,
    Tick,
)
from replog.messages import (
    AlterPartitionRequest,
    CreateTopicRequest,
    DamagedLog,
    ErrorCode,
    HeartbeatRequest,
    IsrProposal,
    LeaderlessLog,
    RegisterBrokerRequest,
    ReplicaState,
)
from replog.registrations import TopicConfig
from replog.types import TopicPartition
from tests.controller.one_voter import Follower, OneVoter

OPTIONS = ControllerOptions()
SESSION_MS = OPTIONS.broker_session_timeout_ms


class Controller:
    """The controller under a clock of its own, asked one request at a time."""

    def __init__(self):
        self.topic_ids = 0
        self.now_ms = 1000
        self.request_id = 0
        self.incidents = []
        self.answers = {}
        self.model = OneVoter(OPTIONS, self._new_topic_id)
        self.epochs = {}
        self.runs = {}

    def _new_topic_id(self):
        self.topic_ids += 1
        return uuid.UUID(int=self.topic_ids)

    def step(self, event):
        """The answers that this event brings, by request id."""
        answers = {}
        for effect in self.model.step(event, self.now_ms):
            if isinstance(effect, Report):
                self.incidents.append(effect.incident)
            else:
                assert isinstance(effect, Respond)
                assert effect.request_id not in self.answers
                answers[effect.request_id] = effect.response
        self.answers.update(answers)
        return answers

    def ask(self, request, sender=None):
        """The answer to a request, or None if it waits."""
        self.request_id += 1
        event = RequestReceived(request_id=self.request_id, sender=sender, request=request)
        return self.step(event).get(self.request_id)

    def tick(self, after_ms):
        self.now_ms += after_ms
        return self.step(Tick())

    def lose(self, broker_id):
        self.step(ConnectionLost(broker_id=broker_id))

    def register(self, broker_id, incarnation="first", previous=-1, rack=None, logs=()):
        """Register without unfencing."""
        request = RegisterBrokerRequest(
            broker_id=broker_id,
            incarnation_id=incarnation,
            previous_broker_epoch=previous,
            rack=rack,
            replicas=tuple(logs),
        )
        response = self.ask(request)
        if response.error == 0:
            self.epochs[broker_id] = response.broker_epoch
            self.runs[broker_id] = incarnation
        return response

    def heartbeat(self, broker_id, version=None, **more):
        """As a broker does it: one whose epoch is over registers again first."""
        response = self.heartbeat_once(broker_id, version, **more)
        if response.error is ErrorCode.STALE_BROKER_EPOCH:
            self.register(broker_id, self.runs[broker_id], previous=self.epochs[broker_id])
            response = self.heartbeat_once(broker_id, version, **more)
        return response

    def heartbeat_once(self, broker_id, version=None, damaged=(), first_epoch=None, **more):
        return self.ask(
            HeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=self.epochs[broker_id],
                first_broker_epoch=self.epochs[broker_id] if first_epoch is None else first_epoch,
                version=self.model.version if version is None else version,
                damaged=tuple(map(self.damaged_log, damaged)),
                **more,
            )
        )

    def damaged_log(self, name):
        """What a broker says of its log; of the topic that has the name now, if not told more."""
        if isinstance(name, DamagedLog):
            return name
        known = self.model.partition(name)
        return DamagedLog(
            topic_partition=name,
            topic_id=known and known.topic_id,
            partition_epoch=known.partition_epoch if known else 0,
            leader_epoch=known.leader_epoch if known else 0,
        )

    def start(self, *broker_ids, **more):
        """Register and unfence; logs that nobody leads are told as they were found, or empty."""
        for broker_id in broker_ids:
            assert self.register(broker_id, **more).error == 0
            leaderless = tuple(self.leaderless(broker_id, more.get("logs", ())))
            assert not self.heartbeat(broker_id, leaderless=leaderless).fenced

    def leaderless(self, broker_id, logs):
        found = {(log.topic_partition, log.topic_id): log for log in logs}
        for topic in self.model.topics():
            for name in self.model.partitions_of(topic):
                now = self.model.partition(name)
                if broker_id in now.replicas and now.leader_id is None:
                    log = found.get((name, now.topic_id)) or log_of(now, -1, 0)
                    if not log.damaged:
                        yield leaderless_log(now, log.latest_epoch, log.log_end_offset)

    def restart(self, broker_id, incarnation, *, clean, logs=()):
        """Lose a broker and let it come back, unfenced."""
        self.lose(broker_id)
        previous = self.epochs[broker_id] if clean else -1
        self.start(broker_id, incarnation=incarnation, previous=previous, logs=logs)

    def create(self, topic="t", replicas=(0, 1, 2), min_insync_replicas=1, unclean=False):
        response = self.ask(
            CreateTopicRequest(
                topic=topic,
                assignment=(tuple(replicas),),
                config=TopicConfig(
                    min_insync_replicas=min_insync_replicas, unclean_leader_election_enable=unclean
                ),
            )
        )
        assert response.error == 0, response
        return TopicPartition(topic, 0)

    def partition(self, topic="t"):
        return self.model.partition(TopicPartition(topic, 0))

    def propose(self, isr, sender=None, topic="t", **changes):
        """The leader's proposal for the in-sync set, right in all that `changes` leaves alone."""
        response = self.propose_later(isr, sender, topic, **changes)
        return response.decisions[0].error if response.decisions else response.error

    def propose_later(self, isr, sender=None, topic="t", **changes):
        """Likewise; None where the answer waits."""
        now = self.partition(topic)
        sender = now.leader_id if sender is None else sender
        fields = {
            "topic_partition": now.topic_partition,
            "topic_id": now.topic_id,
            "leader_epoch": now.leader_epoch,
            "partition_epoch": now.partition_epoch,
            "isr": tuple(member if isinstance(member, tuple) else (member, -1) for member in isr),
        } | {name: value for name, value in changes.items() if name != "broker_epoch"}
        return self.ask(
            AlterPartitionRequest(
                broker_id=sender,
                broker_epoch=changes.get("broker_epoch", self.epochs.get(sender, -1)),
                proposals=(IsrProposal(**fields),),
            )
        )


def log_of(partition, latest_epoch, log_end_offset, *, damaged=False):
    """What a starting broker says of its replica."""
    return ReplicaState(
        topic_partition=partition.topic_partition,
        topic_id=partition.topic_id,
        latest_epoch=latest_epoch,
        log_end_offset=log_end_offset,
        damaged=damaged,
    )


def leaderless_log(partition, latest_epoch, log_end_offset):
    """What a broker that has obeyed this registration says of a log that nobody leads."""
    return LeaderlessLog(
        topic_partition=partition.topic_partition,
        topic_id=partition.topic_id,
        leader_epoch=partition.leader_epoch,
        latest_epoch=latest_epoch,
        log_end_offset=log_end_offset,
    )


class Conversation:
    """Sessions of several brokers with one controller; messages arrive at once, in order, and
    each broker follows the log as soon as it goes on.
    """

    def __init__(self):
        self.controller = Controller()
        self.sessions = {}
        self.followers = {}
        self.others = {}
        self.requests = {}

    def start(self, broker_id, incarnation="first", previous=-1, logs=()):
        session = BrokerSession(broker_id, incarnation, None, OPTIONS)
        self.sessions[broker_id] = session
        self.followers[broker_id] = Follower()
        self.others[broker_id] = []
        self._carry(broker_id, session.start(previous, logs, self.controller.now_ms))
        self._follow()

    def step(self, broker_id, event):
        session = self.sessions[broker_id]
        self._carry(broker_id, session.step(event, self.controller.now_ms))

    def kill(self, broker_id):
        """The process is gone: what it had asked is not answered to the next one."""
        del self.sessions[broker_id]
        for asked in [asked for asked, (asker, _) in self.requests.items() if asker == broker_id]:
            del self.requests[asked]
        self._deliver(self.controller.step(ConnectionLost(broker_id=broker_id)))

    def run(self, for_ms):
        """Let every deadline come that is due within this time."""
        end_ms = self.controller.now_ms + for_ms
        while True:
            deadlines = [self.controller.model.next_deadline_ms] + [
                session.next_deadline_ms for session in self.sessions.values()
            ]
            due_ms = min((found for found in deadlines if found is not None), default=end_ms)
            if due_ms > end_ms:
                self.controller.now_ms = end_ms
                return
            self.controller.now_ms = max(due_ms, self.controller.now_ms)
            self._deliver(self.controller.step(Tick()))
            for broker_id in sorted(self.sessions):
                self.step(broker_id, Tick())

    def _carry(self, broker_id, effects):
        for effect in effects:
            if not isinstance(effect, SendToController):
                self.others[broker_id].append(effect)
                continue
            self.controller.request_id += 1
            asked = self.controller.request_id
            self.requests[asked] = (broker_id, effect.request_id)
            event = RequestReceived(request_id=asked, sender=broker_id, request=effect.request)
            self._deliver(self.controller.step(event))

    def _deliver(self, answers):
        for asked, response in answers.items():
            broker_id, request_id = self.requests.pop(asked, (None, None))
            if broker_id in self.sessions:
                event = ResponseReceived(request_id=request_id, response=response)
                self.step(broker_id, event)
        self._follow()

    def _follow(self):
        model = self.controller.model
        for broker_id in sorted(self.sessions):
            delta = self.followers[broker_id].take(model.log, model.version)
            if delta is not None:
                self.step(broker_id, MetadataFollowed(delta))
