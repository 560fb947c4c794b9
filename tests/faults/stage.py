"""Carries a script out on real logs, in a directory in memory, and checks each step.

Faults come from the recording table of system calls; what it records is played on the disk model
when the power goes.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from random import Random
from typing import Any

from replog._native import mapped_file, recorded_calls
from replog._native.recorded_calls import Strike
from replog.config import LogConfig
from replog.errors import LogFailedError, ReplogError
from replog.storage.log_directory import LogDirectory
from replog.storage.partition_log import PartitionLog
from replog.types import TopicPartition
from tests.crash.checker import booted, write_image
from tests.crash.disk_model import DiskModel, some_of
from tests.crash.workload import NOW_MS
from tests.faults import oracle
from tests.faults.finding import Finding, require
from tests.faults.index_files import check_indexes
from tests.faults.model import PartitionModel
from tests.faults.plan import Partition, Plan, World
from tests.faults.script import Script, Step
from tests.faults.verbs import VERBS

DESCRIPTORS_MAX = 2048
FEW_DESCRIPTORS = {errno.EMFILE, errno.ENFILE}
NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
INVISIBLE = {errno.EINTR, 0}
WRITING_CALLS = ("pwritev", "ftruncate", "rename", "unlink", "mkdir", "rmdir", "fdatasync")
APPENDS = {
    "append", "append_much", "append_as_leader", "append_as_producer", "end_transaction",
    "append_as_follower", "repeat", "roll",
}  # fmt: skip


def config_of(options: dict[str, Any]) -> LogConfig:
    taken = {key: value for key, value in options.items() if key not in ("kind", "descriptors")}
    return LogConfig(max_message_bytes=taken["segment_bytes"], **taken)


class Stage:
    """One run. `struck` counts the steps in which a system call has failed or was cut short."""

    def __init__(self, script: Script, folder: str) -> None:
        self.options: dict[str, Any] = script.options
        self.config = config_of(self.options)
        self.folder = folder
        self.bare = self.options["kind"] == "bare"
        self.directory = os.path.join(folder, "t-0") if self.bare else folder
        self.world = World(
            NOW_MS,
            commits=self.options["flush_mode"] == "commit",
            syncs=self.config.flush_mode == "commit" or self.config.flush_messages < 1 << 62,
            compacted=self.config.compacted,
            segment_bytes=self.config.segment_bytes,
        )
        self.partitions: dict[TopicPartition, Partition] = {}
        self.models: dict[TopicPartition, PartitionModel] = {}
        self.logs: Any = None
        self.log: Any = None
        self.lasting: list[tuple[int, Any]] = []
        self.struck = 0
        self.steps = 0
        self.disk = DiskModel(self.directory)
        self.boots = 1
        self.clean = False

    def play(self, script: Script) -> None:
        """Raises Finding."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.directory)
        recorded_calls.install()
        mapped_file.limit_descriptors(self.options["descriptors"])
        try:
            with booted(lambda: f"boot {self.boots}"):
                self.play_steps(script)
        finally:
            recorded_calls.uninstall()
            self.let_go()
            mapped_file.limit_descriptors(DESCRIPTORS_MAX)

    def play_steps(self, script: Script) -> None:
        recorded_calls.record()
        for number, step in enumerate(script.steps):
            self.at = f"step {number}, {step}"
            self.steps += 1
            self.carry_out(step)
        self.at = "the end"
        self.kill()
        self.reopen_whole(by_power=False)

    def let_go(self) -> None:
        self.world.views.clear()
        for log in (self.logs, self.log):
            if log is not None:
                log.abandon() if log is self.logs else log.close(flush=False)

    # One step.

    def carry_out(self, step: Step) -> None:
        if self.is_closed and step.verb != "open":
            self.reopen_whole(by_power=False)
        stops = {"close": self.close, "power": self.power, "open": self.open_anew}
        if step.verb == "kill":
            self.kill()
        elif step.verb in stops:
            stops[step.verb](step)
        elif step.verb in VERBS:
            self.one_verb(step)
        else:
            {
                "create": self.create,
                "delete": self.delete,
                "remove_deleted": self.remove_deleted,
                "persist_all": self.persist_all,
            }[step.verb](step)
        self.disarm()
        if not self.is_closed:
            for key, partition in self.partitions.items():
                oracle.check(key, partition, self.world)
        oracle.check_views(self.world)

    @property
    def is_closed(self) -> bool:
        return self.log is None and self.logs is None

    def arm(self, step: Step) -> None:
        self.lasting = [(left - 1, fault) for left, fault in self.lasting if left > 1]
        faults = [fault for _, fault in self.lasting] + list(step.faults)
        self.lasting += [(fault.steps, fault) for fault in step.faults if fault.steps > 1]
        for fault in faults[:8]:
            if fault.cause:
                recorded_calls.fail(
                    fault.kind, fault.cause, nth=fault.nth, times=fault.times, path=fault.path
                )
            else:
                recorded_calls.shorten(
                    fault.kind, fault.bytes_max, nth=fault.nth, times=fault.times, path=fault.path
                )

    def disarm(self) -> list[Strike]:
        found = recorded_calls.strikes()
        recorded_calls.clear_faults()
        self.struck += bool(found)
        return found

    def attempt(
        self, step: Step, act: Callable[[], Any]
    ) -> tuple[Any, ReplogError | None, list[Strike]]:
        """What it answers, or the error that it refuses with; anything else is a finding."""
        self.arm(step)
        answer, refusal = None, None
        try:
            answer = act()
        except ReplogError as error:
            refusal = error
        except (Exception, SystemError) as error:
            told = f"{type(error).__name__}: {error}, after {recorded_calls.strikes()}"
            raise Finding("untyped", told) from error
        return answer, refusal, self.disarm()

    def one_verb(self, step: Step) -> None:
        if not self.partitions:
            return
        keys = sorted(self.partitions)
        key = keys[step.numbers[-1] % len(keys)]
        partition = self.partitions[key]
        plan = VERBS[step.verb](partition, self.world, step.numbers)
        answer, refusal, strikes = self.attempt(step, plan.act)
        model = partition.model
        if refusal is None:
            if model.failed and plan.writes and not partition.log.failed:
                raise Finding("failed-log-works", "a failed log says that it is none")
            if model.failed and plan.writes:
                raise Finding("failed-log-works", f"it answers {answer}")
            oracle.take_fillers(partition)
            plan.done(answer)
            if partition.log.failed and not model.failed:
                raise Finding("failed-log-answers", f"the log failed, and answered {answer}")
            return
        self.judge_refusal(step, partition, plan, refusal, strikes)

    def judge_refusal(
        self,
        step: Step,
        partition: Partition,
        plan: Plan,
        refusal: ReplogError,
        strikes: list[Strike],
    ) -> None:
        model, log = partition.model, partition.log
        told = f"{type(refusal).__name__}: {refusal}, after {strikes}"
        if model.failed:
            expected = isinstance(refusal, (LogFailedError, *plan.refusals)) or not plan.writes
            require(expected, "failed-log-works", told)
            require(log.failed, "failed-log-heals", told)
            return
        causes = {strike.cause for strike in strikes}
        if not causes - INVISIBLE:
            require(isinstance(refusal, plan.refusals or ()), "refused", told)
            require(not log.failed, "fails-by-itself", told)
            return
        if log.failed:
            kinds = {strike.kind for strike in strikes}
            small = causes - INVISIBLE <= FEW_DESCRIPTORS
            if step.verb in APPENDS and causes - INVISIBLE <= NO_SPACE:
                small = kinds <= {"open", "pwritev"}
            # What fails again while it is undone, or cannot be synced now, is another matter.
            small = small and len(strikes) == 1 and not self.world.syncs
            require(not (small and step.verb in {*APPENDS, "flush"}), "fails-for-little", told)
            require(isinstance(refusal, LogFailedError), "fails-unsaid", told)
            model.failed = True
            model.between += plan.leaves
            return
        said = plan.writes and isinstance(refusal, LogFailedError)
        require(not said, "says-it-failed", told)
        if step.verb in APPENDS:
            oracle.take_epoch(partition)
        if plan.may_move is not None:
            # The log start is on the disk before it is seen, and may be there unseen.
            start = log.log_start_offset
            require(model.state.start <= start <= plan.may_move, "left-behind", told)
            model.moved_start(start)
            model.start_min = max(model.start_min, start)
            model.start_max = max(model.start_max, plan.may_move)

    # Partitions of a directory.

    def create(self, step: Step) -> None:
        key = TopicPartition("t", step.numbers[0] % 3)
        model = self.models.get(key)
        if key in self.partitions:
            return
        answer, refusal, strikes = self.attempt(step, lambda: self.logs.create_log(*key))
        if refusal is None:
            model = self.models[key] = PartitionModel()
            self.partitions[key] = Partition(answer, model)
            return
        told = f"{type(refusal).__name__}: {refusal}, after {strikes}"
        if key in self.logs and model is not None and model.there is None:
            return  # a deletion that failed half-way is still to be made again
        require({s.cause for s in strikes} - INVISIBLE, "refused", told)
        if model is None or not model.there:
            before = [] if model is None else [model.state]
            self.models[key] = PartitionModel(there=None, unsynced=before)
        require(key not in self.logs, "left-behind", f"{key} is there: {told}")

    def delete(self, step: Step) -> None:
        if not self.partitions:
            return
        keys = sorted(self.partitions)
        key = keys[step.numbers[0] % len(keys)]
        _, refusal, strikes = self.attempt(step, lambda: self.logs.delete_partition(key))
        model = self.models[key]
        if refusal is None:
            model.there = False
            del self.partitions[key]
            require(key not in self.logs, "left-behind", f"{key} is deleted and there")
            return
        told = f"{type(refusal).__name__}: {refusal}, after {strikes}"
        require({s.cause for s in strikes} - INVISIBLE, "refused", told)
        if key in self.logs and not self.logs[key].closed:
            return  # as it was
        # Half deleted: it takes no more work, and a stop decides whether it is there.
        model.there = None
        del self.partitions[key]

    def remove_deleted(self, step: Step) -> None:
        act = lambda: self.logs.remove_deleted(self.world.now_ms + 10**6)  # noqa: E731
        _, refusal, strikes = self.attempt(step, act)
        self.need_fault(refusal, strikes)

    def persist_all(self, step: Step) -> None:
        def act() -> None:
            self.logs.checkpoint_recovery_points()
            self.logs.checkpoint_log_start_offsets()
            self.logs.checkpoint_high_watermarks()

        _, refusal, strikes = self.attempt(step, act)
        self.need_fault(refusal, strikes)

    def need_fault(self, refusal: ReplogError | None, strikes: list[Strike]) -> None:
        if refusal is not None:
            told = f"{type(refusal).__name__}: {refusal}, after {strikes}"
            require({s.cause for s in strikes} - INVISIBLE, "refused", told)

    # Ends and beginnings.

    def open_engine(self) -> None:
        clock = lambda: self.world.now_ms  # noqa: E731
        if self.bare:
            self.log = PartitionLog.open(self.directory, self.config, now_ms=clock)
        else:
            self.logs = LogDirectory.open(
                self.directory, self.config, now_ms=clock, recovery_threads=1
            )

    def open_anew(self, step: Step) -> None:
        """Open after a kill, with faults; where that is refused, the next open must find all."""
        if not self.is_closed:
            self.kill()
        _, refusal, strikes = self.attempt(step, self.open_engine)
        if refusal is not None:
            self.need_fault(refusal, strikes)
            self.log = self.logs = None
        elif self.logs is not None and self.logs.refused and strikes:
            self.kill()
        elif any(log.failed for log in self.open_logs().values()):
            require(strikes, "fails-by-itself", "a log that has just been opened")
            self.kill()
        else:
            self.settle(by_power=False)

    def open_logs(self) -> dict[TopicPartition, Any]:
        if self.bare:
            return {TopicPartition("t", 0): self.log}
        return {key: self.logs.partition_log(key) for key in self.logs}

    def reopen_whole(self, *, by_power: bool) -> None:
        recorded_calls.clear_faults()
        self.lasting.clear()
        try:
            self.open_engine()
        except Exception as error:
            raise Finding("reopen", f"{type(error).__name__}: {error}") from error
        if self.logs is not None and self.logs.refused:
            raise Finding("reopen", "; ".join(map(str, self.logs.refused.values())))
        self.settle(by_power=by_power)

    def settle(self, *, by_power: bool) -> None:
        """Hold what was found against what a stop may leave, and go on from there."""
        self.partitions.clear()
        found = self.open_logs()
        if self.bare:
            self.models.setdefault(TopicPartition("t", 0), PartitionModel())
        for key, model in self.models.items():
            if key not in found:
                require(not model.there, "reopen", f"{key} is gone")
                model.there = False
        for key, log in found.items():
            require(key in self.models, "reopen", f"{key} is there, which nobody made")
            model = self.models[key]
            require(model.there is not False, "reopen", f"{key} is there, which was deleted")
            oracle.reopened(key, log, model, by_power=by_power, clean=self.clean)
            self.partitions[key] = Partition(log, model)
        self.clean = False

    def close(self, step: Step) -> None:
        engine = self.log if self.bare else self.logs
        _, refusal, strikes = self.attempt(step, engine.close)
        failed = any(partition.model.failed for partition in self.partitions.values())
        if refusal is not None and not failed:
            self.need_fault(refusal, strikes)
        require(engine.closed, "close", f"it is open after {refusal}, {strikes}")
        for key, partition in self.partitions.items():
            require(partition.log.closed, "close", f"{key} is open after {refusal}, {strikes}")
        self.refuse_closed()
        if refusal is None:
            for partition in self.partitions.values():
                if not partition.model.failed and not partition.log.failed:
                    partition.model.synced()
                    check_indexes(partition.log.path, partition.model.state)
            self.clean = not failed
        self.forget()

    def refuse_closed(self) -> None:
        for partition in self.partitions.values():
            try:
                partition.log.append([b"late"])
            except ReplogError:
                continue
            raise Finding("close", "a closed log takes records")

    def forget(self) -> None:
        # Views are of the process that has gone; those of a closed log outlive it, but not what
        # another log does to the same files.
        self.world.views.clear()
        self.partitions.clear()
        self.log = self.logs = None

    def kill(self) -> None:
        """Let go of all as a killed process does: nothing may be written any more."""
        recorded_calls.clear_faults()
        self.lasting.clear()
        if self.is_closed:
            return
        before = [recorded_calls.call_count(kind) for kind in WRITING_CALLS]
        if self.bare:
            self.log.close(flush=False)
        else:
            self.logs.abandon()
        after = [recorded_calls.call_count(kind) for kind in WRITING_CALLS]
        require(before == after, "kill", f"{WRITING_CALLS}: {before}, then {after}")
        self.forget()

    def power(self, step: Step) -> None:
        self.kill()
        for call in recorded_calls.recorded():
            self.disk.apply(call)
        random = Random(step.numbers[1])
        pending = self.disk.pending
        match step.numbers[0] % 6:
            case 0:
                survivors = list(pending)
            case 1:
                survivors = []
            case 2:
                survivors = pending[: random.randrange(len(pending) + 1)]
            case _:
                survivors = some_of(pending, random)
        image = self.disk.image(survivors)
        write_image(self.directory, image)
        self.disk = DiskModel(self.directory, image)
        recorded_calls.record()
        self.boots += 1
        self.clean = False
        self.reopen_whole(by_power=True)
