"""What a story's cluster owes its clients, read off the diary alone.

Owed per topic id and partition, by offset: the record that was acknowledged there (acks=all), or
that a consumer has read there. Given up: what is below an asked delete-records, topics that were
asked to go, and what only copies held that the story has taken away.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.shake.clients import SENDS_PER_LIFE

Partition = tuple[str, int]
"""Topic id and number."""
Record = tuple[int, int]
"""Send, and place in it."""


@dataclasses.dataclass
class Violation:
    """A rule of the contract that did not hold."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


@dataclasses.dataclass
class Topic:
    name: str
    order: int
    life: int
    unclean: bool
    gone: bool = False


@dataclasses.dataclass
class Send:
    topic_id: str
    partition: int
    count: int
    acks: Any
    ended_in: str | None = None
    """The topic that the name stood for when it was answered; None while it was not."""


@dataclasses.dataclass
class Settled:
    """A partition of the last life."""

    name: str
    replicas: list[int]
    waits: str | None
    whole: bool


class Book:
    """Reads the diary on; `violations` are those that it tells by itself."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.sends: dict[int, Send] = {}
        self.owed: dict[Partition, dict[int, Record]] = {}
        self.acknowledged = 0
        self.cuts: dict[Partition, int] = {}
        self.lows: dict[Partition, int] = {}
        self.tampered: dict[Partition, set[int]] = {}
        """Brokers whose copy the story has changed, and that did not hold all again since."""
        self.ever_tampered: set[Partition] = set()
        self.replaced_brokers: set[int] = set()
        """Whose directories as a whole were wiped, or older ones put in their place."""
        self.in_sync_at_close: dict[str, list[int]] | None = None
        """Brokers that ran and were in sync when the latest life was closed, by directory name;
        None unless it was.
        """
        self.in_sync_before: dict[str, list[int]] | None = None
        self.tampered_before: dict[Partition, set[int]] = {}
        self.settled: dict[Partition, Settled] = {}
        self.lost: dict[Partition, list[tuple[int, int]]] = {}
        self.untold: set[Partition] = set()
        self.not_opened: str | None = None
        self.violations: list[Violation] = []
        self._opened: dict[int, int] = {}
        self._read_lines = 0
        self._life_number = 0

    def read(self, diary: list[dict[str, Any]]) -> None:
        """Take in what was written since."""
        for entry in diary[self._read_lines :]:
            take = getattr(self, f"_{entry['k'].replace(' ', '_')}", None)
            if take is not None:
                take(entry)
        self._read_lines = len(diary)

    def blame(self, rule: str, text: str) -> None:
        self.violations.append(Violation(rule, text))

    def is_legal(self, send: int, topic_id: str) -> bool:
        """Whether a record of `send` may stand in a log of this topic id."""
        sent, found = self.sends.get(send), self.topics.get(topic_id)
        if found is None:
            return True  # created by a life that died before it could tell
        if sent is None:
            return False
        meant = self.topics[sent.topic_id]
        if meant.name != found.name or found.order < meant.order:
            return False
        ended = None if sent.ended_in is None else self.topics.get(sent.ended_in)
        if ended is not None:
            return found.order <= ended.order
        return found.life <= send // SENDS_PER_LIFE

    def _life(self, entry: dict[str, Any]) -> None:
        self._life_number = entry["life"]
        self.in_sync_at_close = None
        self.not_opened = None

    def _topic(self, entry: dict[str, Any]) -> None:
        if entry["id"] not in self.topics:
            self.topics[entry["id"]] = Topic(
                entry["name"], len(self.topics), self._life_number, entry["unclean"]
            )

    def _gone(self, entry: dict[str, Any]) -> None:
        for topic_id, topic in self.topics.items():
            if topic_id == entry["id"] or (entry["id"] is None and topic.name == entry["name"]):
                topic.gone = True

    def _send(self, entry: dict[str, Any]) -> None:
        self.sends[entry["s"]] = Send(entry["id"], entry["p"], entry["n"], entry["a"])

    def _ack(self, entry: dict[str, Any]) -> None:
        send = self.sends[entry["s"]]
        send.ended_in = entry["id"]
        if send.acks != "all" or send.topic_id != entry["id"]:
            return
        if entry["l"] - entry["b"] + 1 != send.count:
            self.blame("answer", f"send {entry['s']} of {send.count} records was answered {entry}")
        self.acknowledged += send.count
        for place in range(send.count):
            self._owe((send.topic_id, send.partition), entry["b"] + place, (entry["s"], place))

    def _owe(self, partition: Partition, offset: int, record: Record) -> None:
        topic = self.topics[partition[0]]
        if topic.gone or offset < self.cuts.get(partition, 0):
            return
        before = self.owed.setdefault(partition, {}).setdefault(offset, record)
        if before != record and not topic.unclean:
            self.blame(
                "reused",
                f"{topic.name} {partition}: offset {offset} held {before}, then {record}",
            )

    def _open(self, entry: dict[str, Any]) -> None:
        self._opened[entry["r"]] = self.lows.get((entry["id"], entry["p"]), 0)

    def _read(self, entry: dict[str, Any]) -> None:
        partition = (entry["id"], entry["p"])
        name = f"{self.topics[entry['id']].name} {partition}"
        low = self._opened.get(entry["r"], 0)
        if entry["strange"]:
            self.blame("bytes", f"{name}: a consumer read {entry['strange'][:3]}")
        latest = -1
        for offset, send, place in entry["seen"]:
            if not self.is_legal(send, entry["id"]):
                where = self.sends.get(send)
                self.blame("foreign", f"{name}: offset {offset} holds {send}:{place} of {where}")
                break
            if offset < low:
                self.blame("deleted", f"{name}: {offset} was read, below the low watermark {low}")
                break
            if offset <= latest:
                self.blame("order", f"{name}: {offset} was read behind {latest}")
            latest = offset
            self._owe(partition, offset, (send, place))

    def _cut(self, entry: dict[str, Any]) -> None:
        partition = (entry["id"], entry["p"])
        self.cuts[partition] = max(self.cuts.get(partition, 0), entry["o"])
        held = self.owed.get(partition, {})
        for offset in [offset for offset in held if offset < entry["o"]]:
            del held[offset]

    def _low(self, entry: dict[str, Any]) -> None:
        partition = (entry["id"], entry["p"])
        if self.topics[entry["id"]].unclean:
            return  # a replica that was away, and never heard of it, may come to lead
        self.lows[partition] = max(self.lows.get(partition, 0), entry["o"])

    def _wipe(self, entry: dict[str, Any]) -> None:
        """Of a broker that ran: by directory names."""
        for partition in self.owed:
            if f"{self.topics[partition[0]].name}-{partition[1]}" in entry["names"]:
                self.tamper(partition, entry["b"])

    def tamper(self, partition: Partition, broker: int) -> None:
        self.tampered.setdefault(partition, set()).add(broker)
        self.ever_tampered.add(partition)

    def keep_before(self) -> None:
        """The last life is about to begin: who was in sync and who was changed is kept for it."""
        self.in_sync_before = self.in_sync_at_close
        self.tampered_before = {key: set(brokers) for key, brokers in self.tampered.items()}

    def _closing(self, entry: dict[str, Any]) -> None:
        self.in_sync_at_close = {
            name: [broker for broker in isr if broker in entry["running"]]
            for name, isr in entry["isr"].items()
        }

    def _settled(self, entry: dict[str, Any]) -> None:
        self.settled[entry["id"], entry["p"]] = Settled(
            entry["name"], entry["replicas"], entry["waits"], entry["whole"]
        )

    def _lost(self, entry: dict[str, Any]) -> None:
        partition = (entry["id"], entry["p"])
        told = [(start, end) for _, start, end in entry["ranges"]]
        self.lost.setdefault(partition, []).extend(told)
        if entry["untold"]:
            self.untold.add(partition)

    def _not_opened(self, entry: dict[str, Any]) -> None:
        self.not_opened = entry["why"]

    def _violation(self, entry: dict[str, Any]) -> None:
        self.blame(entry["rule"], entry["text"])
