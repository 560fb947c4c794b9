from typing import Final

from replog._native.message_cursor import Message

class ControllerFeature(Message):
    name: str
    min_supported_version: int
    max_supported_version: int
    def __init__(
        self,
        *,
        name: str = ...,
        min_supported_version: int = ...,
        max_supported_version: int = ...,
    ) -> None: ...

class ControllerEndpoint(Message):
    name: str
    host: str
    port: int
    security_protocol: int
    def __init__(
        self,
        *,
        name: str = ...,
        host: str = ...,
        port: int = ...,
        security_protocol: int = ...,
    ) -> None: ...

class ClientQuotaEntity(Message):
    entity_type: str
    entity_name: str | None
    def __init__(self, *, entity_type: str = ..., entity_name: str | None = ...) -> None: ...

class BrokerFeature(Message):
    name: str
    min_supported_version: int
    max_supported_version: int
    def __init__(
        self,
        *,
        name: str = ...,
        min_supported_version: int = ...,
        max_supported_version: int = ...,
    ) -> None: ...

class BrokerEndpoint(Message):
    name: str
    host: str
    port: int
    security_protocol: int
    def __init__(
        self,
        *,
        name: str = ...,
        host: str = ...,
        port: int = ...,
        security_protocol: int = ...,
    ) -> None: ...

class RegisterBrokerRecord(Message):
    broker_id: int
    is_migrating_zk_broker: bool
    incarnation_id: bytes
    broker_epoch: int
    end_points: tuple[BrokerEndpoint, ...]
    features: tuple[BrokerFeature, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[bytes, ...]
    def __init__(
        self,
        *,
        broker_id: int = ...,
        is_migrating_zk_broker: bool = ...,
        incarnation_id: bytes = ...,
        broker_epoch: int = ...,
        end_points: tuple[BrokerEndpoint, ...] = ...,
        features: tuple[BrokerFeature, ...] = ...,
        rack: str | None = ...,
        fenced: bool = ...,
        in_controlled_shutdown: bool = ...,
        log_dirs: tuple[bytes, ...] = ...,
    ) -> None: ...

class UnregisterBrokerRecord(Message):
    broker_id: int
    broker_epoch: int
    def __init__(self, *, broker_id: int = ..., broker_epoch: int = ...) -> None: ...

class TopicRecord(Message):
    name: str
    topic_id: bytes
    def __init__(self, *, name: str = ..., topic_id: bytes = ...) -> None: ...

class PartitionRecord(Message):
    partition_id: int
    topic_id: bytes
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    leader: int
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[bytes, ...]
    eligible_leader_replicas: tuple[int, ...] | None
    last_known_elr: tuple[int, ...] | None
    def __init__(
        self,
        *,
        partition_id: int = ...,
        topic_id: bytes = ...,
        replicas: tuple[int, ...] = ...,
        isr: tuple[int, ...] = ...,
        removing_replicas: tuple[int, ...] = ...,
        adding_replicas: tuple[int, ...] = ...,
        leader: int = ...,
        leader_recovery_state: int = ...,
        leader_epoch: int = ...,
        partition_epoch: int = ...,
        directories: tuple[bytes, ...] = ...,
        eligible_leader_replicas: tuple[int, ...] | None = ...,
        last_known_elr: tuple[int, ...] | None = ...,
    ) -> None: ...

class ConfigRecord(Message):
    resource_type: int
    resource_name: str
    name: str
    value: str | None
    def __init__(
        self,
        *,
        resource_type: int = ...,
        resource_name: str = ...,
        name: str = ...,
        value: str | None = ...,
    ) -> None: ...

class PartitionChangeRecord(Message):
    partition_id: int
    topic_id: bytes
    isr: tuple[int, ...] | None
    leader: int
    replicas: tuple[int, ...] | None
    removing_replicas: tuple[int, ...] | None
    adding_replicas: tuple[int, ...] | None
    leader_recovery_state: int
    directories: tuple[bytes, ...] | None
    eligible_leader_replicas: tuple[int, ...] | None
    last_known_elr: tuple[int, ...] | None
    def __init__(
        self,
        *,
        partition_id: int = ...,
        topic_id: bytes = ...,
        isr: tuple[int, ...] | None = ...,
        leader: int = ...,
        replicas: tuple[int, ...] | None = ...,
        removing_replicas: tuple[int, ...] | None = ...,
        adding_replicas: tuple[int, ...] | None = ...,
        leader_recovery_state: int = ...,
        directories: tuple[bytes, ...] | None = ...,
        eligible_leader_replicas: tuple[int, ...] | None = ...,
        last_known_elr: tuple[int, ...] | None = ...,
    ) -> None: ...

class FenceBrokerRecord(Message):
    id: int
    epoch: int
    def __init__(self, *, id: int = ..., epoch: int = ...) -> None: ...

class UnfenceBrokerRecord(Message):
    id: int
    epoch: int
    def __init__(self, *, id: int = ..., epoch: int = ...) -> None: ...

class RemoveTopicRecord(Message):
    topic_id: bytes
    def __init__(self, *, topic_id: bytes = ...) -> None: ...

class DelegationTokenRecord(Message):
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int
    token_id: str
    def __init__(
        self,
        *,
        owner: str = ...,
        requester: str = ...,
        renewers: tuple[str, ...] = ...,
        issue_timestamp: int = ...,
        max_timestamp: int = ...,
        expiration_timestamp: int = ...,
        token_id: str = ...,
    ) -> None: ...

class UserScramCredentialRecord(Message):
    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
    def __init__(
        self,
        *,
        name: str = ...,
        mechanism: int = ...,
        salt: bytes = ...,
        stored_key: bytes = ...,
        server_key: bytes = ...,
        iterations: int = ...,
    ) -> None: ...

class FeatureLevelRecord(Message):
    name: str
    feature_level: int
    def __init__(self, *, name: str = ..., feature_level: int = ...) -> None: ...

class ClientQuotaRecord(Message):
    entity: tuple[ClientQuotaEntity, ...]
    key: str
    value: float
    remove: bool
    def __init__(
        self,
        *,
        entity: tuple[ClientQuotaEntity, ...] = ...,
        key: str = ...,
        value: float = ...,
        remove: bool = ...,
    ) -> None: ...

class ProducerIdsRecord(Message):
    broker_id: int
    broker_epoch: int
    next_producer_id: int
    def __init__(
        self,
        *,
        broker_id: int = ...,
        broker_epoch: int = ...,
        next_producer_id: int = ...,
    ) -> None: ...

class BrokerRegistrationChangeRecord(Message):
    broker_id: int
    broker_epoch: int
    fenced: int
    in_controlled_shutdown: int
    log_dirs: tuple[bytes, ...]
    def __init__(
        self,
        *,
        broker_id: int = ...,
        broker_epoch: int = ...,
        fenced: int = ...,
        in_controlled_shutdown: int = ...,
        log_dirs: tuple[bytes, ...] = ...,
    ) -> None: ...

class AccessControlEntryRecord(Message):
    id: bytes
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int
    def __init__(
        self,
        *,
        id: bytes = ...,
        resource_type: int = ...,
        resource_name: str = ...,
        pattern_type: int = ...,
        principal: str = ...,
        host: str = ...,
        operation: int = ...,
        permission_type: int = ...,
    ) -> None: ...

class RemoveAccessControlEntryRecord(Message):
    id: bytes
    def __init__(self, *, id: bytes = ...) -> None: ...

class NoOpRecord(Message): ...

class ZkMigrationStateRecord(Message):
    zk_migration_state: int
    def __init__(self, *, zk_migration_state: int = ...) -> None: ...

class RemoveUserScramCredentialRecord(Message):
    name: str
    mechanism: int
    def __init__(self, *, name: str = ..., mechanism: int = ...) -> None: ...

class BeginTransactionRecord(Message):
    name: str | None
    def __init__(self, *, name: str | None = ...) -> None: ...

class EndTransactionRecord(Message): ...

class AbortTransactionRecord(Message):
    reason: str | None
    def __init__(self, *, reason: str | None = ...) -> None: ...

class RemoveDelegationTokenRecord(Message):
    token_id: str
    def __init__(self, *, token_id: str = ...) -> None: ...

class RegisterControllerRecord(Message):
    controller_id: int
    incarnation_id: bytes
    zk_migration_ready: bool
    end_points: tuple[ControllerEndpoint, ...]
    features: tuple[ControllerFeature, ...]
    def __init__(
        self,
        *,
        controller_id: int = ...,
        incarnation_id: bytes = ...,
        zk_migration_ready: bool = ...,
        end_points: tuple[ControllerEndpoint, ...] = ...,
        features: tuple[ControllerFeature, ...] = ...,
    ) -> None: ...

class ClearElrRecord(Message):
    topic_name: str
    def __init__(self, *, topic_name: str = ...) -> None: ...

MESSAGES: Final[dict[int, type[Message]]]
