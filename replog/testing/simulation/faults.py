"""The faults of a run, and the atlas that keeps them recoverable.

What replog promises bounds what may be done to it (C1 to C4). Any number of processes may be
killed, paused and cut off at any time, also while others recover. But of the copies of a partition
that is not synced before its acknowledgements, no more than `min_insync_replicas - 1` may be
incomplete at once: after a loss of power, of a disk or to rot, until they are in sync again. A
fault that would break this is left out. With `flush_mode=commit` power may be lost everywhere at
once.

Each fault is an `Action` that says all there is to it, so a recorded list of them is played again
without any chance, in part or whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from replog.testing.simulation.cuts import between, links_cut
from replog.testing.simulation.held_requests import hold_next
from replog.testing.simulation.prng import Stream
from replog.testing.simulation.scheduler import MICROSECONDS_PER_MS
from replog.testing.simulation.sim_broker import SimBroker
from replog.testing.simulation.sim_controller import SimController
from replog.testing.simulation.world import SCRATCH, World
from replog.types import TopicPartition

CUT_MS_MAX = 12_000
HELD_MS_MEAN = 4000
CUT_LONGER_MS = 1000
"""Who was to join comes back when the request that was held up has done its harm."""
CONTROLLER_DOWN_MS_MAX = 4000
STORM_MS = 250
"""Between two rounds of a storm of restarts."""


class Action(NamedTuple):
    """`verb` done to `targets` (addresses) at `at_us`; undone after `duration_ms`."""

    at_us: int
    verb: str
    targets: tuple[int, ...]
    duration_ms: int = 0


class Faults:
    """Draws faults, or plays given ones, until `heal`."""

    def __init__(self, world: World, stream: Stream) -> None:
        self.world = world
        self.performed: list[Action] = []
        self.healed = False
        self._stream = stream
        self._power = world.streams.stream("power")
        self._verbs: dict[str, Callable[[Action], bool]] = {
            "kill": self._kill,
            "power": self._power_loss,
            "pause": self._pause,
            "pause controller": self._pause_controller,
            "crash controller": self._crash_controller,
            "power controller": self._power_controllers,
            "restart storm": self._storm,
            "shut down": self._shut_down,
            "cut": self._cut,
            "recreate": self._recreate,
            "clog": self._clog,
            "reset": self._reset,
            "hold request": self._hold_request,
            "stall disk": self._stall,
            "fill disk": self._fill,
            "fail disk": self._fail,
            "damage": self._damage,
            "replace disk": self._replace_disk,
            "write back": self._write_back,
        }

    def start(self) -> None:
        """Begin to draw."""
        self._after_a_while()

    def play(self, actions: Iterable[Action]) -> None:
        """Do these and no others."""
        for action in actions:
            self.world.scheduler.plan(action.at_us, self._perform, action)

    def heal(self) -> None:
        """No more faults; what is broken is mended, who is down is started."""
        self.healed = True
        world = self.world
        world.network.heal_all()
        world.network.options.loss = world.network.options.reset = 0.0
        for controller in world.quorum.controllers.values():
            controller.resume()
            if controller.disk.failed:
                controller.kill()
            controller.disk.repair()
            controller.start()
        for broker in world.brokers.values():
            if broker.paused:
                broker.resume()
            if broker.disk.failed:
                broker.kill()  # whose disk has failed must be started anew
            broker.disk.repair()
        for broker in world.brokers.values():
            if not broker.running:
                broker.start()

    def _after_a_while(self) -> None:
        mean = self.world.options.fault_interval * MICROSECONDS_PER_MS
        pause = 1000 + self._stream.exponential(mean)
        self.world.scheduler.plan(self.world.scheduler.now_us + pause, self._draw)

    def _draw(self, _: None) -> None:
        if self.healed:
            return
        kinds = self.world.options.faults
        action = self._drawn(self._stream.choice(kinds)) if kinds else None
        if action is not None:
            self._perform(action)
        self._after_a_while()

    def _perform(self, action: Action) -> None:
        if not self.healed and self._verbs[action.verb](action):
            self.performed.append(action)
            self.world.oracle.note(
                f"fault: {action.verb} {action.targets} for {action.duration_ms} ms"
            )

    # -- what is drawn

    def _drawn(self, kind: str) -> Action | None:
        stream, world = self._stream, self.world
        now = world.scheduler.now_us
        ids = list(world.brokers)
        voters = world.quorum.addresses
        some = stream.choice(ids)
        down = stream.exponential(world.options.down_time)
        leaders = [
            truth.registration.leader_id
            for truth in world.truth.partitions.values()
            if truth.registration.leader_id is not None
        ]
        if kind.endswith(" leader"):
            if not leaders:
                return None
            some = stream.choice(leaders)
        if kind == "recreate unheard":
            return self._drawn_recreation(now)
        if kind.endswith((" controller", " controllers")):
            return self._drawn_of_controllers(kind, now, min(down, CONTROLLER_DOWN_MS_MAX))
        links = links_cut(kind, some, world.addresses, voters, stream)
        if links is not None:
            return Action(now, "cut", links, self._cut_ms())
        if kind.endswith(" leader"):
            return Action(now, kind.split(maxsplit=1)[0], (some,), down)
        if kind in {"kill all", "power all"}:
            return Action(now, kind.split(maxsplit=1)[0], tuple(stream.sample(ids, len(ids))), down)
        if kind == "restart at once":
            return Action(now, "kill", (some,), stream.below(50))
        if kind in {"clog", "reset"}:
            return Action(now, kind, tuple(stream.sample(world.addresses, 2)), self._cut_ms())
        if kind == "hold request":
            source = stream.choice(leaders or ids)
            controller = world.quorum.truth.leader_id
            target = stream.choice((controller, *(other for other in ids if other != source)))
            return Action(now, kind, (source, target), stream.exponential(HELD_MS_MEAN))
        if kind == "damage":
            return Action(now, kind, (some, stream.below(world.options.partitions)), down)
        if kind == "restart storm":
            everybody = world.addresses
            rounds = [stream.choice(everybody) for _ in range(stream.between(4, 12))]
            return Action(now, kind, tuple(rounds), stream.below(300))
        if kind in {"stall disk", "fill disk", "fail disk"} and stream.chance(0.2):
            some = stream.choice(voters)
        return Action(now, kind, (some,), down)

    def _drawn_recreation(self, now: int) -> Action | None:
        """Its leader, or all its replicas, hear of nothing meanwhile."""
        truth = self.world.truth.partitions.get(TopicPartition(SCRATCH, 0))
        if truth is None or truth.registration.leader_id is None:
            return None
        deaf = truth.registration.replicas
        if self._stream.chance(0.5):
            deaf = (truth.registration.leader_id,)
        voters = self.world.quorum.addresses
        links = tuple(end for one in deaf for voter in voters for end in (voter, one))
        return Action(now, "recreate", links, self._cut_ms())

    def _drawn_of_controllers(self, kind: str, now: int, down: int) -> Action:
        """Of the one that leads, more often than not."""
        quorum, stream = self.world.quorum, self._stream
        voters = quorum.addresses
        leader = quorum.truth.leader_id
        one = leader if stream.chance(0.7) else stream.choice(voters)
        if kind == "power controllers":
            return Action(now, "power controller", voters, down)
        if kind == "isolate controller":
            others = [voter for voter in voters if voter != one]
            if stream.chance(0.5):
                others = [other for other in self.world.addresses if other != one]
            return Action(now, "cut", between((one,), others), self._cut_ms())
        return Action(now, kind, (one,), down)

    def _cut_ms(self) -> int:
        return min(CUT_MS_MAX, 50 + self._stream.exponential(3000))

    # -- what keeps it recoverable

    def _may_lose(
        self,
        losing: tuple[int, ...],
        partition: int | None = None,
        *,
        unsynced_only: bool = False,
    ) -> bool:
        """Whether these brokers' disks, or with `unsynced_only` the ends of their logs, may go."""
        for name, truth in self.world.truth.partitions.items():
            registration = truth.registration
            if partition is not None and name.partition != partition:
                continue
            if not any(broker_id in losing for broker_id in registration.replicas):
                continue
            lost = [
                broker_id
                for broker_id in registration.replicas
                if broker_id in losing or (broker_id, name) in self.world.truth.incomplete
            ]
            if len(lost) > registration.min_insync_replicas - 1:
                return False
            if not (unsynced_only or truth.had_enough_in_sync):
                return False  # its only copies may be those that would be lost for good
        return True

    # -- what is done

    def _restart_later(self, broker: SimBroker, duration_ms: int) -> None:
        incarnation = broker.incarnation

        def restart(_: None) -> None:
            if not broker.running and broker.incarnation == incarnation and not self.healed:
                broker.start()

        self.world.scheduler.after(duration_ms * MICROSECONDS_PER_MS, restart)

    def _kill(self, action: Action) -> bool:
        for place, broker_id in enumerate(action.targets):
            broker = self.world.brokers[broker_id]
            broker.kill()
            self._restart_later(broker, action.duration_ms * (place + 1))
        return True

    def _power_loss(self, action: Action) -> bool:
        targets = tuple(b for b in action.targets if self.world.brokers[b].running)
        synced = self.world.options.flush_mode == "commit"
        if not targets:
            return False
        if not synced and not self._may_lose(targets, unsynced_only=True):
            return False
        for broker_id in targets:
            broker = self.world.brokers[broker_id]
            self.world.network.forget(broker_id)
            ends = {name: log.log_end_offset for name, log in broker.disk.logs.items()}
            incarnation = broker.incarnation
            broker.kill(self._power)
            lost = [
                name for name, log in broker.disk.logs.items() if log.log_end_offset < ends[name]
            ]
            if lost:
                self.world.marks.hit("power lost with unsynced records")
            if not synced:
                self.world.oracle.lost(broker_id, incarnation, lost)
            self._restart_later(broker, action.duration_ms)
        return True

    def _pause(self, action: Action) -> bool:
        (broker_id,) = action.targets
        broker = self.world.brokers[broker_id]
        if broker.paused or not broker.running:
            return False
        if any(broker_id == claimant for claimant, _ in self.world.truth.claims):
            self.world.marks.hit("broker paused while it led")
        broker.pause()
        incarnation = broker.incarnation

        def resume(_: None) -> None:
            if broker.incarnation == incarnation:
                broker.resume()

        self.world.scheduler.after(action.duration_ms * MICROSECONDS_PER_MS, resume)
        return True

    def _pause_controller(self, action: Action) -> bool:
        controller = self.world.quorum.controllers[action.targets[0]]
        if controller.paused or not controller.running:
            return False
        controller.pause()
        self._undo_after(action.duration_ms, controller.resume)
        return True

    def _crash_controller(self, action: Action) -> bool:
        controller = self.world.quorum.controllers[action.targets[0]]
        if not controller.running:
            return False
        controller.kill()
        self.world.marks.hit("controller crashed")
        self._undo_after(action.duration_ms, controller.start)
        return True

    def _power_controllers(self, action: Action) -> bool:
        """Voters sync what they vouch for, so all of them may lose their power at once."""
        controllers = [self.world.quorum.controllers[one] for one in action.targets]
        for place, controller in enumerate(controllers):
            self.world.network.forget(controller.address)
            controller.kill(self._power)
            self._undo_after(action.duration_ms * (place + 1), controller.start)
        if len(controllers) == len(self.world.quorum.addresses):
            self.world.marks.hit("controllers lost power all at once")
        return True

    def _storm(self, action: Action) -> bool:
        """One node after the other is killed and started again, some of them more than once."""
        for place, address in enumerate(action.targets):
            at_us = self.world.scheduler.now_us + place * STORM_MS * MICROSECONDS_PER_MS
            self.world.scheduler.plan(at_us, self._bounce, (address, action.duration_ms))
        self.world.marks.hit("many nodes restarted within a second")
        return True

    def _bounce(self, what: tuple[int, int]) -> None:
        address, duration_ms = what
        if self.healed:
            return
        if address in self.world.brokers:
            broker = self.world.brokers[address]
            broker.kill()
            self._restart_later(broker, duration_ms)
        else:
            controller = self.world.quorum.controllers[address]
            controller.kill()
            self._undo_after(duration_ms, controller.start)

    def _shut_down(self, action: Action) -> bool:
        (broker_id,) = action.targets
        broker = self.world.brokers[broker_id]
        if not broker.running or broker.paused:
            return False
        broker.shut_down()
        incarnation = broker.incarnation

        wait_us = (3000 + action.duration_ms) * MICROSECONDS_PER_MS

        def see(_: None) -> None:
            if broker.incarnation != incarnation:
                return
            if broker.running and (self.healed or broker.paused):
                self.world.scheduler.after(wait_us, see)  # healed, it must end by itself
                return
            if broker.running:
                broker.close()  # it has waited long enough for the controller's leave
            if not broker.running:
                broker.start()

        self.world.scheduler.after(wait_us, see)
        return True

    def _undo_after(self, duration_ms: int, undo: Callable[[], None]) -> None:
        def end(_: None) -> None:
            if not self.healed:
                undo()

        self.world.scheduler.after(duration_ms * MICROSECONDS_PER_MS, end)

    def _cut(self, action: Action) -> bool:
        if not action.targets:
            return False
        links = list(zip(action.targets[::2], action.targets[1::2], strict=True))
        links = [link for link in links if link[0] != link[1]]
        network = self.world.network
        for source, target in links:
            network.cut(source, target)
        if len(links) == 1:
            self.world.marks.hit("one-way partition")
        else:
            self.world.marks.hit("broker cut off from the others")

        def heal() -> None:
            for source, target in links:
                network.heal(source, target)

        self._undo_after(action.duration_ms, heal)
        return True

    def _recreate(self, action: Action) -> bool:
        """Delete the topic that comes and goes, and give its name to another one at once."""
        if not self.world.admin.recreate():
            return False
        self.world.marks.hit("topic created again behind a cut")
        return self._cut(action)

    def _clog(self, action: Action) -> bool:
        source, target = action.targets
        until_us = self.world.scheduler.now_us + action.duration_ms * MICROSECONDS_PER_MS
        self.world.network.clog(source, target, until_us)
        return True

    def _reset(self, action: Action) -> bool:
        self.world.network.reset(*action.targets)
        return True

    def _hold_request(self, action: Action) -> bool:
        """See `held_requests`; replicas that were to join are cut off meanwhile."""
        source, target = action.targets

        def cut_off(joining: Sequence[int]) -> None:
            if self.healed:
                return
            links = tuple(end for member in joining for end in (member, source))
            self._cut(
                action._replace(targets=links, duration_ms=action.duration_ms + CUT_LONGER_MS)
            )

        hold_next(self.world, source, target, action.duration_ms, cut_off)
        return True

    def _machine(self, action: Action) -> SimBroker | SimController:
        (address,) = action.targets
        return self.world.brokers.get(address) or self.world.quorum.controllers[address]

    def _stall(self, action: Action) -> bool:
        machine = self._machine(action)
        if machine.flushes is None:
            return False
        machine.flushes.stalled_until_us = (
            self.world.scheduler.now_us + action.duration_ms * MICROSECONDS_PER_MS
        )
        return True

    def _fill(self, action: Action) -> bool:
        disk = self._machine(action).disk
        if disk.full:
            return False
        disk.fill()
        self.world.marks.hit("disk full")
        self._undo_after(action.duration_ms, disk.empty)
        return True

    def _fail(self, action: Action) -> bool:
        """A failed disk stays so until the node is started again."""
        machine = self._machine(action)
        if not machine.running:
            return False
        machine.disk.fail()
        self.world.marks.hit("disk failed")

        def replace() -> None:
            machine.kill()
            machine.disk.repair()
            if isinstance(machine, SimBroker):
                self._restart_later(machine, 100)
            else:
                machine.start()

        self._undo_after(action.duration_ms, replace)
        return True

    def _damage(self, action: Action) -> bool:
        """The broker is found dead, and one of its logs rotten when it comes back."""
        broker_id, partition = action.targets
        broker = self.world.brokers[broker_id]
        if not self._may_lose((broker_id,), partition):
            return False
        names = [name for name in broker.disk.logs if name.partition == partition]
        if not names:
            return False
        incarnation = broker.incarnation
        broker.kill()
        broker.disk.damaged.update(names)
        self.world.oracle.lost(broker_id, incarnation, names)
        self._restart_later(broker, action.duration_ms)
        return True

    def _replace_disk(self, action: Action) -> bool:
        (broker_id,) = action.targets
        broker = self.world.brokers[broker_id]
        if not self._may_lose((broker_id,)):
            return False
        incarnation = broker.incarnation
        broker.kill()
        names = list(broker.disk.logs)
        broker.disk.wipe()
        self.world.oracle.lost(broker_id, incarnation, names)
        self._restart_later(broker, action.duration_ms)
        return True

    def _write_back(self, action: Action) -> bool:
        self.world.brokers[action.targets[0]].disk.write_back()
        return True
