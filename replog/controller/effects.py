"""What the controller and a broker's session ask the world to do: carried out in list order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from replog.types import frozen_positional

if TYPE_CHECKING:
    from replog.controller.incidents import Incident
    from replog.messages import ErrorCode, HeartbeatRequest, RegisterBrokerRequest
    from replog.registrations import MetadataDelta
    from replog.types import LostRecords


@frozen_positional
class Respond:
    """Answer the controller's RequestReceived of this id, once."""

    request_id: int
    response: Any
    """A ControllerResponse or an AdminAnswer."""


@frozen_positional
class Report:
    """Tell operators what the controller saw or decided, and why."""

    incident: Incident


@frozen_positional
class AppendRecords:
    """Append one atomic batch to the metadata log, as the quorum's leader of this epoch.

    Answered by RecordsAppended, then by Committed; or by LeadershipLost. The first record gets
    `base_offset`: the controller has no rival in its epoch.
    """

    controller_epoch: int
    base_offset: int
    records: tuple[Any, ...]


@frozen_positional
class Resign:
    """Give up the quorum's leadership: what was appended is not what was decided."""

    message: str


@frozen_positional
class ReloadState:
    """Load the latest snapshot and apply the committed log again: what was decided may be lost."""


@frozen_positional
class SendToController:
    """Ask the controller; answered by ResponseReceived or RequestFailed, or not at all."""

    request_id: int
    request: RegisterBrokerRequest | HeartbeatRequest


@frozen_positional
class SetBrokerEpoch:
    """The broker is registered; it acts under this epoch, and writes it into its clean marker."""

    broker_epoch: int


@frozen_positional
class StopLeading:
    """The session has run out, by our clock or by the controller's word: another may lead by now,
    so that nothing is to be appended or served as a leader until LeadAgain.
    """

    message: str


@frozen_positional
class LeadAgain:
    """The controller has answered: what the metadata says we lead, we do."""


@frozen_positional
class ApplyMetadata:
    """The next delta of the metadata; the session counts it as applied when this is carried out."""

    delta: MetadataDelta


@frozen_positional
class CutLosses:
    """The controller has written down that these will be lost: nothing hinders the cut any more."""

    heard: tuple[LostRecords, ...]


@frozen_positional
class SessionEnded:
    """Nothing more comes of this session.

    NONE: leaderships are moved away, the broker may stop. Otherwise the controller refuses this
    broker for good (another incarnation of it has registered); it must stop leading at once.
    """

    error: ErrorCode
    message: str


ControllerEffect: TypeAlias = Respond | Report | AppendRecords | Resign | ReloadState
SessionEffect: TypeAlias = (
    SendToController
    | SetBrokerEpoch
    | StopLeading
    | LeadAgain
    | CutLosses
    | ApplyMetadata
    | SessionEnded
)
