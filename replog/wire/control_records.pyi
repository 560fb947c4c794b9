from typing import Final

from replog._native.message_cursor import Message

class KRaftVersionFeature(Message):
    min_supported_version: int
    max_supported_version: int
    def __init__(
        self,
        *,
        min_supported_version: int = ...,
        max_supported_version: int = ...,
    ) -> None: ...

class VoterEndpoint(Message):
    name: str
    host: str
    port: int
    def __init__(self, *, name: str = ..., host: str = ..., port: int = ...) -> None: ...

class Voter(Message):
    voter_id: int
    voter_directory_id: bytes
    endpoints: tuple[VoterEndpoint, ...]
    k_raft_version_feature: KRaftVersionFeature
    def __init__(
        self,
        *,
        voter_id: int = ...,
        voter_directory_id: bytes = ...,
        endpoints: tuple[VoterEndpoint, ...] = ...,
        k_raft_version_feature: KRaftVersionFeature = ...,
    ) -> None: ...

class LeaderChangeVoter(Message):
    voter_id: int
    voter_directory_id: bytes
    def __init__(self, *, voter_id: int = ..., voter_directory_id: bytes = ...) -> None: ...

class LeaderChangeMessage(Message):
    version: int
    leader_id: int
    voters: tuple[LeaderChangeVoter, ...]
    granting_voters: tuple[LeaderChangeVoter, ...]
    def __init__(
        self,
        *,
        version: int = ...,
        leader_id: int = ...,
        voters: tuple[LeaderChangeVoter, ...] = ...,
        granting_voters: tuple[LeaderChangeVoter, ...] = ...,
    ) -> None: ...

class SnapshotHeaderRecord(Message):
    version: int
    last_contained_log_timestamp: int
    def __init__(self, *, version: int = ..., last_contained_log_timestamp: int = ...) -> None: ...

class SnapshotFooterRecord(Message):
    version: int
    def __init__(self, *, version: int = ...) -> None: ...

class KRaftVersionRecord(Message):
    version: int
    k_raft_version: int
    def __init__(self, *, version: int = ..., k_raft_version: int = ...) -> None: ...

class VotersRecord(Message):
    version: int
    voters: tuple[Voter, ...]
    def __init__(self, *, version: int = ..., voters: tuple[Voter, ...] = ...) -> None: ...

MESSAGES: Final[dict[int, type[Message]]]
