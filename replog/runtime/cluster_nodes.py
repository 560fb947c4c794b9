"""Which nodes a local cluster has, and what each of them opens on the disk before it can run.

    broker-1/          a broker, its copy of the metadata log in __cluster_metadata-0
    controller-1001/   a controller that stands alone, its log in __cluster_metadata-0

A node with a broker and a controller has one directory, and one log for both. A broker reads its
metadata before it opens its partitions: the topics' options are in there.
"""

from __future__ import annotations

import numbers
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from replog.errors import MissingLogError, UsageError, shown
from replog.runtime.broker_node import ObeyedEpoch, obeyed_epochs
from replog.runtime.log_store import DirectoryLogStore
from replog.runtime.metadata_state import read_whole
from replog.runtime.quorum_log import QuorumReplicaLog
from replog.storage.directory_access import make_directory
from replog.storage.kafka_uuid import format_uuid, random_uuid
from replog.storage.log_directory import LogDirectory
from replog.storage.meta_properties import META_PROPERTIES_FILE, read_meta_properties
from replog.storage.metadata_log import METADATA_PARTITION
from replog.storage.quorum_state import (
    QUORUM_STATE_FILE,
    QuorumState,
    read_quorum_state,
    write_quorum_state,
)
from replog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_CONTROLLER_ID = 1001
BROKER, CONTROLLER = "broker-", "controller-"


class ClusterLayout(NamedTuple):
    """The ids of a cluster's nodes; a controller with a broker's id shares the broker's process."""

    brokers: tuple[int, ...]
    controllers: tuple[int, ...]

    @classmethod
    def of(cls, brokers: int, controllers: int, *, combined: bool) -> ClusterLayout:
        """Brokers from 1 on; controllers beside the first of them, or from 1001 on."""
        first = 1 if combined else FIRST_CONTROLLER_ID
        return cls(tuple(range(1, brokers + 1)), tuple(range(first, first + controllers)))

    @property
    def nodes(self) -> tuple[int, ...]:
        """All ids, controllers first: brokers look for them."""
        return tuple(dict.fromkeys((*self.controllers, *self.brokers)))

    def directory_name(self, node_id: int) -> str:
        """Of the node's directory inside the cluster's."""
        return f"{BROKER if node_id in self.brokers else CONTROLLER}{node_id}"


class OpenedNode(NamedTuple):
    """What a node has on the disk, open. `store` is a broker's, `directory` a lone controller's.

    `obeyed`: which leader epochs an earlier run of a broker may have obeyed. `has_forgotten`: it is
    a controller whose promises are gone.
    """

    log: QuorumReplicaLog
    store: DirectoryLogStore | None
    directory: LogDirectory | None
    obeyed: Mapping[TopicPartition, ObeyedEpoch] = MappingProxyType({})
    has_forgotten: bool = False

    @property
    def directory_id(self) -> bytes | None:
        """Of the node's directory."""
        directory = self.directory if self.store is None else self.store.directory
        found = None if directory is None else directory.meta_properties.directory_id
        return None if found is None else found.bytes

    def abandon(self) -> None:
        """Let go of it as the death of the process would."""
        self.log.close(flush=False)
        if self.store is not None:
            self.store.abandon()
        if self.directory is not None:
            self.directory.abandon()


def open_node(
    path: str,
    node_id: int,
    cluster_id: str,
    wall_ms: Callable[[], int],
    layout: ClusterLayout,
) -> OpenedNode:
    """Open a node's directory, with all the recovery that it needs, after `format_voters`.

    Raises what LogDirectory.open and MetadataLog.open_in raise, MissingLogError for an only
    controller whose log is gone.
    """
    log = QuorumReplicaLog.open_in(path, wall_ms)
    try:
        has_forgotten = _has_forgotten(log, path, node_id, layout)
        if node_id in layout.brokers:
            known = read_whole(log)
            configs = {name: topic.config.log for name, topic in known.topics.items()}
            store = DirectoryLogStore.at(path, node_id, cluster_id, configs, wall_ms)
            return OpenedNode(log, store, None, obeyed_epochs(known), has_forgotten)
        directory = LogDirectory.open(path, cluster_id=cluster_id, node_id=node_id)
        return OpenedNode(log, None, directory, has_forgotten=has_forgotten)
    except BaseException:
        log.close(flush=False)
        raise


def _has_forgotten(log: QuorumReplicaLog, path: str, node_id: int, layout: ClusterLayout) -> bool:
    """Whether a node is a controller without its promises."""
    if node_id not in layout.controllers or log.read_state() is not None:
        return False
    if len(layout.controllers) > 1:
        return True
    where = os.path.join(path, str(METADATA_PARTITION))
    raise MissingLogError(
        f"expected the metadata log of the cluster, with what controller {node_id} has promised, "
        f"in {where}, found none, though the cluster is not new; put the directory back. If it is "
        f"lost for good, copy {METADATA_PARTITION} of the broker whose log goes furthest there: "
        f"what only the controller had is lost then",
        path=where,
    )


def format_voters(directory: str, layout: ClusterLayout) -> None:
    """Write for each controller that it has promised nothing, unless any member has promised.

    Durable on return, and done before any node starts: a voter without the file has lost it, also
    where a crash came between the first promises. (`kafka-storage format` does so for Kafka.)
    Raises NoSpaceError, StorageError, CorruptFileError.
    """
    paths = {
        node_id: os.path.join(directory, layout.directory_name(node_id), str(METADATA_PARTITION))
        for node_id in layout.nodes
    }
    states = {
        node_id: read_quorum_state(os.path.join(path, QUORUM_STATE_FILE))
        for node_id, path in paths.items()
    }
    if any(state is not None and state.leader_epoch > 0 for state in states.values()):
        return
    nothing = QuorumState(version=0, current_voters=layout.controllers)
    for node_id in layout.controllers:
        if states[node_id] is None:
            make_directory(paths[node_id])
            write_quorum_state(os.path.join(paths[node_id], QUORUM_STATE_FILE), nothing)


def settle_cluster_id(directory: str, layout: ClusterLayout) -> str:
    """The id of the cluster in a directory; a fresh one for a new or empty directory.

    Raises UsageError for a directory that holds anything else, or a cluster of other controllers:
    a quorum whose voters change without being told so may decide twice. So it does for one with
    more brokers: what only those hold would be waited for without end.
    """
    names = sorted(os.listdir(directory))
    if not names:
        return format_uuid(random_uuid())
    cluster_ids = []
    for name in names:
        path = os.path.join(directory, name)
        if not name.startswith((BROKER, CONTROLLER)) or not os.path.isdir(path):
            raise UsageError(
                f"expected a new or empty directory, or one of a cluster, found {name!r} in "
                f"{directory}; give another directory",
                path=directory,
            )
        if name not in map(layout.directory_name, layout.nodes):
            raise UsageError(
                f"expected a cluster with the brokers {list(layout.brokers)} and the controllers "
                f"{list(layout.controllers)}, found {name!r} in {directory}; open it with all the "
                f"nodes that it was made with",
                path=directory,
            )
        properties = read_meta_properties(os.path.join(path, META_PROPERTIES_FILE))
        state = read_quorum_state(os.path.join(path, str(METADATA_PARTITION), QUORUM_STATE_FILE))
        if state is not None and state.current_voters != layout.controllers:
            raise UsageError(
                f"expected a cluster with the controllers {list(layout.controllers)}, found "
                f"{name!r} in {directory} to be of one with {list(state.current_voters)}; open it "
                f"with those",
                path=directory,
            )
        if properties is not None and properties.cluster_id is not None:
            cluster_ids.append(properties.cluster_id)
    return cluster_ids[0] if cluster_ids else format_uuid(random_uuid())


def check_layout(brokers: int, controllers: int, *, combined: bool) -> ClusterLayout:
    """The ids, or UsageError for what is no cluster."""
    for name, count in (("brokers", brokers), ("controllers", controllers)):
        if not _is_whole(count):
            raise UsageError(f"expected a number of {name}, found {shown(count)}", argument=name)
    if brokers < 1:
        raise UsageError(f"expected at least one broker, found {brokers!r}")
    if controllers < 1 or controllers % 2 == 0:
        raise UsageError(
            f"expected an odd number of controllers, found {controllers!r}; an even one survives "
            f"no more failures than the one below it"
        )
    if combined and controllers > brokers:
        raise UsageError(
            f"expected a broker for each of {controllers} controllers that run beside one, found "
            f"{brokers}; let them stand alone"
        )
    return ClusterLayout.of(brokers, controllers, combined=combined)


def check_racks(racks: object, layout: ClusterLayout) -> dict[int, str]:
    """Broker id to rack, of some or all brokers; raises UsageError for anything else."""
    if racks is None:
        return {}
    if not isinstance(racks, Mapping):
        raise UsageError(
            f"expected racks to be names by broker id, as {{1: 'a', 2: 'b'}}, found {shown(racks)}",
            argument="racks",
        )
    for broker_id, rack in racks.items():
        if not _is_whole(broker_id) or broker_id not in layout.brokers:
            raise UsageError(
                f"expected racks of the brokers {list(layout.brokers)}, found one of "
                f"{shown(broker_id)}",
                argument="racks",
            )
        if not isinstance(rack, str):
            raise UsageError(
                f"expected the rack of broker {broker_id} to be a string, found {shown(rack)}",
                argument="racks",
            )
    # Native code takes no kind of str but str itself.
    return {broker_id: str(rack) for broker_id, rack in racks.items()}


def check_directory(directory: object) -> str:
    """The absolute path; raises UsageError for what is none."""
    path = directory if isinstance(directory, str | os.PathLike) else None
    found = None if path is None else os.fspath(path)
    if not isinstance(found, str) or not found or "\0" in found:
        raise UsageError(
            f"expected directory to be a path, found {shown(directory)}", argument="directory"
        )
    return os.path.abspath(found)


def _is_whole(found: object) -> bool:
    return isinstance(found, numbers.Integral) and not isinstance(found, bool)
