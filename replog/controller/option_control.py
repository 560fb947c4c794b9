"""Options of topics and brokers: set one by one, checked together, in force at once."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from replog.admin_messages import AdminResponse, AlterOptionsRequest, ResourceKind
from replog.controller.decision import Decision
from replog.controller.incidents import OptionsChanged
from replog.controller.metadata_image import EVERY_BROKER
from replog.controller.partition_control import PartitionControl
from replog.controller.replication_throttle import FOLLOWER_RATE, LEADER_RATE
from replog.controller.topic_checks import Refusal, check_options
from replog.controller.topic_options import natural_from
from replog.messages import ErrorCode
from replog.wire.metadata_records import ConfigRecord

_RATE_MAX = 2**63 - 1


class OptionControl:
    """Carries out what operators want set."""

    def __init__(self, decision: Decision, partitions: PartitionControl) -> None:
        self._decision = decision
        self._image = decision.image
        self._partitions = partitions

    def alter(self, request: AlterOptionsRequest) -> AdminResponse:
        """Set options, or set them back."""
        known = self._image.options.get((request.kind, request.name), {})
        wanted = dict(known)
        for option, text in request.options.items():
            if text is None:
                wanted.pop(option, None)
            else:
                wanted[option] = text
        refusal = self._check(request, wanted)
        if refusal is not None:
            return AdminResponse(error=refusal.error, message=refusal.message)
        changed = {
            option: text
            for option, text in request.options.items()
            if wanted.get(option) != known.get(option)
        }
        if changed and not request.validate_only:
            self._set(request, changed)
        return AdminResponse(version=self._decision.next_offset)

    def _set(self, request: AlterOptionsRequest, changed: Mapping[str, str | None]) -> None:
        for option, text in changed.items():
            self._decision.write(
                ConfigRecord(
                    resource_type=int(request.kind),
                    resource_name=request.name,
                    name=option,
                    value=text,
                )
            )
        self._decision.report(
            OptionsChanged(
                resource=f"{request.kind.name.lower()} {request.name}".strip(),
                options=tuple(sorted(changed.items())),
            )
        )
        if request.kind is ResourceKind.TOPIC:
            # A lower floor lets the in-sync set commit alone: who left it vouches no more. And
            # where any replica may lead now, one does.
            for partition in self._image.topics[request.name].partitions.values():
                settle = functools.partial(self._partitions.settle, partition)
                self._partitions.attempt(partition, settle)

    def _check(self, request: AlterOptionsRequest, wanted: Mapping[str, str]) -> Refusal | None:
        if request.kind is ResourceKind.TOPIC:
            if request.name not in self._image.topics:
                return Refusal(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"expected an existing topic, found no {request.name!r} to set options of",
                )
            return check_options(wanted)
        if request.name != EVERY_BROKER and request.name not in map(str, self._image.brokers):
            return Refusal(
                ErrorCode.INVALID_REQUEST,
                f"expected the id of a registered broker, or nothing for all of them, found "
                f"{request.name!r}; known are {sorted(self._image.brokers)}",
            )
        for option, text in wanted.items():
            if option not in {LEADER_RATE, FOLLOWER_RATE}:
                return Refusal(
                    ErrorCode.INVALID_CONFIG,
                    f"expected {LEADER_RATE} or {FOLLOWER_RATE}, found {option!r}; other options "
                    f"of brokers are given where they are started",
                )
            rate = natural_from(text)
            if rate is None or not 0 < rate <= _RATE_MAX:
                return Refusal(
                    ErrorCode.INVALID_CONFIG,
                    f"expected {option} to be bytes per second, at least 1, found {text!r}",
                )
        return None
