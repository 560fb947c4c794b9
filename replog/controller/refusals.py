"""How each request is told that this controller cannot answer it: another one may."""

from __future__ import annotations

from typing import Any

from replog.admin_messages import (
    AdminResponse,
    AlterOptionsRequest,
    BalanceLeadersRequest,
    BalanceLeadersResponse,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeLossesRequest,
    DescribeLossesResponse,
    DescribePartitionsRequest,
    DescribePartitionsResponse,
    ElectLeadersRequest,
    ListReassignmentsRequest,
    ListReassignmentsResponse,
    PartitionResults,
    ReassignPartitionsRequest,
    StateChangesRequest,
    StateChangesResponse,
    UnregisterBrokerRequest,
)
from replog.messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicRequest,
    DeleteTopicResponse,
    ErrorCode,
    HeartbeatRequest,
    HeartbeatResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)

_ANSWERS: dict[type, type] = {
    AlterPartitionRequest: AlterPartitionResponse,
    RegisterBrokerRequest: RegisterBrokerResponse,
    HeartbeatRequest: HeartbeatResponse,
    CreateTopicRequest: CreateTopicResponse,
    DeleteTopicRequest: DeleteTopicResponse,
    CreateTopicsRequest: CreateTopicsResponse,
    CreatePartitionsRequest: AdminResponse,
    AlterOptionsRequest: AdminResponse,
    UnregisterBrokerRequest: AdminResponse,
    ElectLeadersRequest: PartitionResults,
    ReassignPartitionsRequest: PartitionResults,
    ListReassignmentsRequest: ListReassignmentsResponse,
    BalanceLeadersRequest: BalanceLeadersResponse,
    DescribePartitionsRequest: DescribePartitionsResponse,
    DescribeLossesRequest: DescribeLossesResponse,
    StateChangesRequest: StateChangesResponse,
}


def is_command(request: object) -> bool:
    """Whether a controller has an answer to it."""
    return type(request) in _ANSWERS


def refused(
    request_kind: type, error: ErrorCode = ErrorCode.NOT_CONTROLLER, message: str | None = None
) -> Any:
    """The answer to a request of this kind that says nothing but the error, and why where it has
    a place for that.
    """
    kind: Any = _ANSWERS[request_kind]
    if message is not None and "message" in kind.__dataclass_fields__:
        return kind(error=error, message=message)
    return kind(error=error)
