"""One life of a cluster in a process of its own: `life.py STORY LIFE KIND SECONDS MAY_WIPE`.

KIND: `exit` (os._exit after SECONDS, wherever it is then), `close` (cleanly after SECONDS) or
`settle`: nothing is done but to wait until all is in sync, and to read it.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import logging
import os
import sys
import threading
import time
import traceback
from pathlib import Path

import replog
from replog.admin_messages import (
    DescribeLossesRequest,
    DescribePartitionsRequest,
    ListReassignmentsRequest,
)
from replog.config import ControllerOptions, QuorumOptions, ReplicationOptions
from replog.errors import ReplogError, RequestTimedOutError
from replog.types import TopicPartition
from tests.shake.clients import Clients, Names
from tests.shake.diary import Diary
from tests.shake.pacing import pause
from tests.shake.plan import Plan
from tests.shake.troubles import Troubles

EXITED = 137
REFUSED_TO_OPEN = 3
SETTLE_S_MAX = 25.0


def cluster_of(plan: Plan, directory: Path) -> replog.LocalCluster:
    return replog.LocalCluster(
        plan.brokers,
        controllers=plan.controllers,
        combined=plan.combined,
        directory=directory,
        replication=ReplicationOptions(
            replica_lag_time_max_ms=1500,
            replica_fetch_wait_max_ms=100,
            replica_fetch_backoff_ms=50,
            replica_high_watermark_checkpoint_interval_ms=500,
            request_timeout_ms=3000,
        ),
        controller=ControllerOptions(
            broker_session_timeout_ms=1000, broker_heartbeat_interval_ms=200
        ),
        quorum=QuorumOptions(
            election_timeout_ms=300,
            fetch_timeout_ms=700,
            fetch_wait_max_ms=100,
            request_timeout_ms=700,
            snapshot_interval_bytes=20_000,
        ),
    )


def partitions(cluster: replog.LocalCluster) -> list[TopicPartition]:
    count = cluster._running().connection.partition_count
    return [
        TopicPartition(topic, number)
        for topic in cluster.topics()
        for number in range(count(topic))
    ]


def crashes(cluster: replog.LocalCluster, diary: Diary) -> None:
    """A node that broke an invariant is a finding, whatever comes of it."""
    for address, error in cluster._running().pump.crashes:
        text = "".join(traceback.format_exception(error))
        diary.note("violation", rule="invariant", text=f"node {address}: {text}")


async def shaken(
    cluster: replog.LocalCluster, plan: Plan, diary: Diary, life: int, *, may_wipe: bool
) -> None:
    """Clients and troubles, for ever."""
    names = Names(cluster, diary)
    clients = Clients(cluster, names, diary, plan.seed, life)
    troubles = Troubles(cluster, names, diary, plan, life, may_wipe=may_wipe)
    tasks = [*clients.start(plan.clients), asyncio.ensure_future(troubles.go_on())]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def live(
    plan: Plan, story: Path, diary: Diary, life: int, seconds: float, *, may_wipe: bool
) -> None:
    """A life that ends by a clean close, if os._exit does not end it first."""
    async with cluster_of(plan, story / "cluster") as cluster:
        diary.note("do", what="opened", text=str(cluster.topics()))
        try:
            async with asyncio.timeout(None if seconds == float("inf") else seconds):
                await shaken(cluster, plan, diary, life, may_wipe=may_wipe)
        except TimeoutError:
            pass
        crashes(cluster, diary)
        in_sync = {str(name): cluster.isr(*name) for name in partitions(cluster)}
        running = [node for node in cluster.broker_ids if runs(cluster, node)]
        diary.note("closing", isr=in_sync, running=running)


def runs(cluster: replog.LocalCluster, node: int) -> bool:
    return cluster._running().pump.runs(node)


async def moved(cluster: replog.LocalCluster, ends_at: float) -> None:
    """Return when no reassignment is under way."""
    while (await cluster.admin(ListReassignmentsRequest())).reassignments:
        if time.monotonic() > ends_at:
            return
        await pause(0.05)


async def settle(plan: Plan, story: Path, diary: Diary, life: int) -> None:
    """Let all come in sync, and read it."""
    ends_at = time.monotonic() + SETTLE_S_MAX
    async with cluster_of(plan, story / "cluster") as cluster:
        names = Names(cluster, diary)
        clients = Clients(cluster, names, diary, plan.seed, life)
        await moved(cluster, ends_at)
        for name in partitions(cluster):
            left_ms = max(1, int(1000 * (ends_at - time.monotonic())))
            waits = None
            try:
                await cluster.in_sync(*name, timeout_ms=left_ms)
                await cluster.leader_after(-1, *name, timeout_ms=left_ms)
            except RequestTimedOutError:
                request = DescribePartitionsRequest(partitions=(name,))
                waits = str((await cluster.admin(request)).partitions[0])
            registration = cluster.registration(*name)
            whole = waits is None and await clients.read(
                *name, start="earliest", count_max=float("inf"), timeout_s=20
            )
            diary.note(
                "settled", id=names.topic_id(name.topic), name=str(name), p=name.partition,
                replicas=registration.replicas, waits=waits, whole=whole,
                unclean=registration.config.unclean_leader_election_enable,
            )  # fmt: skip
        losses = await cluster.admin(DescribeLossesRequest())
        for election in losses.elections:
            name = election.topic_partition
            diary.note(
                "lost", id=names.topic_id(name.topic), p=name.partition,
                ranges=[list(lost) for lost in election.lost], untold=election.untold,
            )  # fmt: skip
        crashes(cluster, diary)
    diary.note("closed")


def exit_after(seconds: float) -> None:
    def wait() -> None:
        threading.Event().wait(seconds)
        os._exit(EXITED)

    threading.Thread(target=wait, daemon=True).start()


def main() -> int:
    faulthandler.enable()
    logging.getLogger("replog").setLevel(logging.CRITICAL)  # troubles are no news here
    story, life, kind, seconds = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    plan = Plan(**json.loads((story / "plan.json").read_text()))
    diary = Diary(story / "diary.jsonl")
    diary.note("life", life=life, kind=kind)
    if kind == "exit":
        exit_after(float(seconds))
    if kind == "settle":
        run = settle(plan, story, diary, life)
    else:
        until_s = float(seconds) if kind == "close" else float("inf")
        run = live(plan, story, diary, life, until_s, may_wipe=sys.argv[5] == "1")
    try:
        asyncio.run(run)
    except ReplogError as error:
        diary.note("not opened", why=f"{type(error).__name__} {error}")
        return REFUSED_TO_OPEN
    diary.note("do", what="closed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
