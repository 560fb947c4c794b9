"""Walks a recording and tries every crash state that it finds, once each."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection
from random import Random

from replog.config import LogConfig
from tests.crash.checker import Outcome, judge, recover
from tests.crash.disk_model import DiskModel, Image, digest_of, survivals
from tests.crash.workload import Expectation, Recording

QUIET_CALLS = {"close"}  # change nothing that a crash could show
# Replaced as a whole, and durable when the operation that does it returns (I15, I27).
REPLACED_FILES = (
    "leader-epoch-checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "partition.metadata",
    ".kafka_cleanshutdown",
)
AllowedContents = dict[str, set[bytes | None]]


@dataclasses.dataclass(frozen=True)
class Failure:
    """A crash state that recovery got wrong."""

    step: str
    call_number: int
    reason: str
    image: Image

    def __str__(self) -> str:
        files = ", ".join(f"{name} ({len(content)})" for name, content in self.image.items())
        return f"crash in {self.step} behind call {self.call_number}: {self.reason} [{files}]"


@dataclasses.dataclass
class Enumerator:
    """Recovers each distinct image once, and judges it by each expectation that it meets."""

    directory: str
    config: LogConfig
    sample_count: int = 12
    seed: int = 1
    share: int = 1  # tries one image in so many, chosen by content
    outcomes: dict[bytes, Outcome] = dataclasses.field(default_factory=dict)
    judged: set[tuple[bytes, int, int]] = dataclasses.field(default_factory=set)
    states_of_step: Counter[str] = dataclasses.field(default_factory=Counter)
    failures: list[Failure] = dataclasses.field(default_factory=list)
    torn_images: list[tuple[Image, Expectation]] = dataclasses.field(default_factory=list)

    def walk(
        self,
        recording: Recording,
        *,
        left_out: Collection[int] = (),
        failures_max: int = 5,
    ) -> None:
        """Crash behind every call of the recording but those left out, as if never made."""
        model = DiskModel(recording.directory, recording.base)
        random = Random(self.seed)
        allowed: AllowedContents = {name: set() for name in REPLACED_FILES}
        for number, (call, expectation) in enumerate(recording.steps()):
            if number in left_out:
                continue
            model.apply(call)
            if call.kind in QUIET_CALLS:
                continue
            for name, contents in allowed.items():
                if call.kind == "mark":
                    contents.clear()
                contents.add(model.content_at(name))
            for survivors in survivals(model.pending, random, self.sample_count):
                image = model.image(survivors)
                self.try_image(image, expectation, number, id(recording))
                self.check_replaced(image, allowed, expectation, number)
                if len(self.failures) >= failures_max:
                    return

    def check_replaced(
        self, image: Image, allowed: AllowedContents, expectation: Expectation, call_number: int
    ) -> None:
        """A file that is replaced as a whole is the old or the new one, and soon the new one."""
        for name, contents in allowed.items():
            if image.get(name) not in contents:
                reason = f"{name} holds {image.get(name)!r}, not one of {contents}"
                self.failures.append(Failure(expectation.step, call_number, reason, image))

    def try_image(
        self, image: Image, expectation: Expectation, call_number: int, recording: int
    ) -> None:
        digest = digest_of(image)
        if int.from_bytes(digest[:4], "big") % self.share:
            return
        seen = (digest, recording, id(expectation))
        if seen in self.judged:
            return
        self.judged.add(seen)
        outcome = self.outcomes.get(digest)
        if outcome is None:
            outcome = self.outcomes[digest] = recover(self.directory, image, self.config)
            self.states_of_step[expectation.step] += 1
            if len(self.outcomes) % 97 == 0:
                self.torn_images.append((image, expectation))
        reason = judge(outcome, expectation)
        if reason is not None:
            self.failures.append(Failure(expectation.step, call_number, reason, image))
