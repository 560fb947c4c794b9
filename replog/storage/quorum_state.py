"""`quorum-state` of the metadata log: the vote and the leader that this voter has promised.

One JSON object, replaced atomically and durable before the promise is answered to a peer (Raft
section 5.1). Version 1 (KIP-853) names the directory that was voted for; version 0 carries the
voters instead. Kafka reads both, and writes the one that its `kraft.version` asks for.
"""

from __future__ import annotations

import dataclasses
import json
import os
import uuid
from typing import Any

from replog._native.mapped_file import read_file, replace_file
from replog.errors import CorruptFileError
from replog.storage.kafka_uuid import format_uuid, parse_uuid

QUORUM_STATE_FILE = "quorum-state"

_ZERO = uuid.UUID(int=0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QuorumState:
    """Fields that replog and Kafka 4 use; unknown ids are -1, an unknown directory is zero.

    cluster_id, applied_offset and current_voters are in files of version 0 only.
    """

    leader_id: int = -1
    leader_epoch: int = 0
    voted_id: int = -1
    voted_directory_id: uuid.UUID = _ZERO
    version: int = 1
    cluster_id: str = ""
    applied_offset: int = 0
    current_voters: tuple[int, ...] = ()


def read_quorum_state(path: str | os.PathLike[str]) -> QuorumState | None:
    """The state in the file at `path`, None if there is no file. Raises CorruptFileError."""
    name = os.fspath(path)
    try:
        content = read_file(name)
    except FileNotFoundError:
        return None
    try:
        return _parse(json.loads(content))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptFileError(
            f"expected a JSON object of data_version 0 or 1 with leaderId, leaderEpoch and votedId "
            f"in {name!r}, found {content[:200]!r}; a voter that has lost its vote may vote twice: "
            f"restore the file or let the voter join anew",
            path=name,
        ) from error


def _parse(fields: dict[str, Any]) -> QuorumState:
    version = _integer(fields, "data_version")
    state = QuorumState(
        leader_id=_integer(fields, "leaderId"),
        leader_epoch=_integer(fields, "leaderEpoch"),
        voted_id=_integer(fields, "votedId"),
        version=version,
    )
    if state.leader_id < -1 or state.voted_id < -1 or state.leader_epoch < 0:
        raise ValueError("an id below -1 or an epoch below 0")
    if version == 1:
        directory_id = parse_uuid(fields.get("votedDirectoryId", format_uuid(_ZERO)))
        return dataclasses.replace(state, voted_directory_id=directory_id)
    if version != 0:
        raise ValueError(f"version {version}")
    return dataclasses.replace(
        state,
        cluster_id=str(fields.get("clusterId", "")),
        applied_offset=_integer(fields, "appliedOffset"),
        current_voters=tuple(_integer(v, "voterId") for v in fields["currentVoters"] or ()),
    )


def _integer(fields: dict[str, Any], name: str) -> int:
    found = fields[name]
    if type(found) is not int:
        raise ValueError(f"{name} {found!r}")
    return found


def write_quorum_state(path: str | os.PathLike[str], state: QuorumState) -> None:
    """Replace the file, durable on return. Raises NoSpaceError, StorageError: the old one stays."""
    fields: dict[str, object] = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted_id,
    }
    if state.version == 0:
        voters = [{"voterId": voter} for voter in state.current_voters]
        fields = {"clusterId": state.cluster_id, **fields}
        fields |= {"appliedOffset": state.applied_offset, "currentVoters": voters}
    else:
        fields["votedDirectoryId"] = format_uuid(state.voted_directory_id)
    fields["data_version"] = state.version
    replace_file(os.fspath(path), json.dumps(fields, separators=(",", ":")).encode())
