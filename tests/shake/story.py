"""One story: lives of one cluster, each in a process of its own, and what is checked in between."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.shake import checker, diary, raw_files
from tests.shake.book import Book, Violation
from tests.shake.plan import Plan
from tests.shake.tampering import Tampering

ROOT = Path(__file__).parents[2]
LIFE = Path(__file__).parent / "life.py"
EXITED, REFUSED_TO_OPEN = 137, 3
HANGS_S = 90
STDERR_SHOWN = 4000


@dataclasses.dataclass
class Told:
    """What came of a story."""

    plan: Plan
    violations: list[Violation]
    lives: int
    acknowledged: int
    troubles: int
    tampered: list[str]
    waiting: int
    seconds: float


class Story:
    """Plays a plan in a directory of its own."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan, self.directory = plan, directory
        self.book = Book()
        self.tampered: list[str] = []
        self._chance = random.Random(f"{plan.seed}/story")
        controllers = range(1, plan.controllers + 1) if plan.combined else ()
        self._tampering = Tampering(directory, self._chance, frozenset(controllers))
        self._refusal_expected = False
        self._lives = 0

    def play(self) -> Told:
        began = time.monotonic()
        (self.directory / "cluster").mkdir(parents=True)
        (self.directory / "plan.json").write_text(json.dumps(dataclasses.asdict(self.plan)))
        for _ in range(self.plan.lives):
            if self._chance.random() < 0.7:
                self._live("exit", self._chance.uniform(0.2, 1.0) ** 2 * 2 * self.plan.life_s + 0.6)
            else:
                self._live("close", self.plan.life_s)
            if self.book.violations:
                break
        if not self.book.violations:
            self._settle()
        entries = diary.entries(self.directory / "diary.jsonl")
        return Told(
            self.plan,
            self.book.violations,
            self._lives,
            self.book.acknowledged,
            sum(entry["k"] in {"do", "wipe", "gone", "cut"} for entry in entries),
            self.tampered,
            sum(settled.waits is not None for settled in self.book.settled.values()),
            time.monotonic() - began,
        )

    def _live(self, kind: str, seconds: float) -> None:
        self._run(kind, seconds)
        if self.book.violations:
            return
        if self._tampering.swapped is not None:
            if self.book.not_opened is None:
                self.book.blame("swapped", "two brokers' directories changed places unnoticed")
            self._tampering.put_back()
        elif self.book.not_opened is not None:
            self.book.blame("not opened", self.book.not_opened)
        copies, contents = self._look()
        checker.check_at_rest(self.book, copies, contents)
        if self.book.violations or not self.plan.tampers:
            return
        self._tampering.keep_copy()
        if self._chance.random() < 0.6:
            done = self._tampering.act(self.book, copies, contents)
            if done is not None:
                self.tampered.append(done)
                diary.Diary(self.directory / "diary.jsonl").note("tampered", text=done)

    def _settle(self) -> None:
        if self._tampering.swapped is not None:
            self._tampering.put_back()
        self.book.keep_before()
        self._run("settle", 0)
        if self.book.not_opened is not None:
            self.book.blame("not opened", self.book.not_opened)
        if self.book.violations:
            return
        copies, contents = self._look()
        checker.check_at_rest(self.book, copies, contents)
        checker.check_settled(self.book, copies, contents)

    def _look(self) -> tuple[checker.Copies, checker.Contents]:
        names = {topic_id: topic.name for topic_id, topic in self.book.topics.items()}
        copies = raw_files.read_cluster(self.directory / "cluster", names)
        return copies, checker.Contents(copies, self.book, self.plan.seed)

    def _run(self, kind: str, seconds: float) -> None:
        """One life, to its end; a hang is killed, and told with every thread's stack."""
        self._lives += 1
        may_wipe = not any(self.book.tampered.values())
        command = [
            sys.executable, str(LIFE), str(self.directory), str(self._lives), kind,
            f"{seconds:.3f}", str(int(may_wipe)),
        ]  # fmt: skip
        with (self.directory / f"stderr-{self._lives}").open("w+") as errors:
            child = subprocess.Popen(
                command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=errors, cwd=ROOT
            )
            try:
                code = child.wait(seconds + HANGS_S)
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGABRT)
                code = child.wait()
            except BaseException:
                child.kill()
                child.wait()
                raise
            errors.seek(0)
            text = errors.read()[-STDERR_SHOWN:]
        self.book.read(diary.entries(self.directory / "diary.jsonl"))
        if code == -signal.SIGABRT:
            self.book.blame("hangs", text)
        elif code not in {0, EXITED, REFUSED_TO_OPEN}:
            self.book.blame("crashed", f"code {code}: {text}")


def play(plan: Plan, directory: Path) -> Told:
    """Play it; the directory stays only if a rule was broken."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    told = Story(plan, directory).play()
    if not told.violations:
        with contextlib.suppress(OSError):
            shutil.rmtree(directory)
    return told
