"""Which copy of its logs a broker comes back with: the one that it had, or less.

A directory is told by its id (KIP-858), and how far it went by the latest broker epoch that was
noted in it: each registration is, before the broker takes part under it. So a directory that is
another one, or as it was before a run that the controllers know of, lacks what that run may have
acknowledged. Its logs are lost, as far as anybody knows, and none of them may stand for records
until it has fetched them anew. The marker of a clean shutdown (KIP-966) says the rest: whether all
that the last run had is still there.
"""

from __future__ import annotations

import enum
import hashlib

from replog.controller.broker_image import BrokerImage
from replog.controller.partition_image import COPY_VERSION
from replog.messages import RegisterBrokerRequest, ReplicaState
from replog.registrations import NO_BROKER_EPOCH
from replog.types import frozen


class Return(enum.Enum):
    """How a broker's directory comes back, as against the last run that took part."""

    AS_IT_WAS = "stopped cleanly, and not used since"
    UNCLEAN = "the last run's, which may have lost what it had not synced"
    OTHER = "another directory, or as it was before the last run"


def judge(known: BrokerImage | None, request: RegisterBrokerRequest) -> Return:
    """What the directory of a starting broker is, given its latest registration."""
    if known is None:
        return Return.AS_IT_WAS
    directory = raw_directory(request)
    if known.directory is not None and directory is not None and directory != known.directory:
        return Return.OTHER
    active = known.active_epoch
    if active is None:
        return Return.AS_IT_WAS  # no run of it has ever taken part
    if request.previous_broker_epoch >= active:
        return Return.AS_IT_WAS
    if NO_BROKER_EPOCH < latest_epoch(request) < active:
        return Return.OTHER
    return Return.UNCLEAN


def latest_epoch(request: RegisterBrokerRequest) -> int:
    """The latest epoch that the directory was used under; NO_BROKER_EPOCH: it does not say."""
    return max(request.previous_broker_epoch, request.last_broker_epoch)


def raw_directory(request: RegisterBrokerRequest) -> bytes | None:
    """The directory's id as records have it."""
    return None if request.directory_id is None else request.directory_id.bytes


@frozen
class ReturnedCopy:
    """A replica's log as its broker comes back with it. `sound`: as it was when the broker stopped.

    `lost` stands for the copy that the broker had, where this is another one; `is_the_lost`: it is
    the one that was missed.
    """

    sound: bool
    lost: bytes | None = None
    is_the_lost: bool = False


class Copies:
    """What one registration says of all replicas of its broker."""

    def __init__(
        self, known: BrokerImage | None, request: RegisterBrokerRequest, back: Return
    ) -> None:
        """known: the registration before it. back: what `judge` has found."""
        self._is_other = back is Return.OTHER
        self._is_clean = back is Return.AS_IT_WAS
        directory, latest = raw_directory(request), latest_epoch(request)
        self._was_clean = request.previous_broker_epoch == latest
        self._brought = _stamp(directory, latest)
        self._had = _stamp(None, None) if known is None else _stamp(*_last_run(known))
        # The rest of the directory has gone on without it: whoever puts it back is told by nothing
        # but that it is there, in this directory, where none is made in its place meanwhile.
        self._missing = _stamp(directory, None)

    def judge(self, log: ReplicaState | None, lost: bytes | None) -> ReturnedCopy:
        """One replica's log. `lost`: the copy that is waited for, if one is."""
        if log is None:
            return ReturnedCopy(sound=False, lost=self._had if self._is_other else None)
        if log.missing:
            return ReturnedCopy(sound=False, lost=self._missing)
        if lost == self._brought:
            return ReturnedCopy(sound=self._was_clean, is_the_lost=True)
        if self._is_other:
            return ReturnedCopy(sound=False, lost=self._had)
        return ReturnedCopy(sound=self._is_clean, is_the_lost=lost == self._missing)


def _last_run(known: BrokerImage) -> tuple[bytes | None, int | None]:
    return known.directory, known.active_epoch


def _stamp(directory: bytes | None, broker_epoch: int | None) -> bytes:
    """16 bytes that stand for a directory as it was left by the run of that epoch.

    They take the place of a directory's id in the metadata of a partition whose last in-sync copy
    is lost: whoever brings it back is recognised, and an older copy of it is not.
    """
    name = b"%s %d" % (directory or b"", -1 if broker_epoch is None else broker_epoch)
    digest = bytearray(hashlib.blake2b(name, digest_size=16).digest())
    digest[6] = COPY_VERSION << 4 | digest[6] & 0x0F
    return bytes(digest)
