"""What tests of a broker's session share: its way to running, and what it sends."""

import uuid

from replog.controller.effects import (
    SendToController,
)
from replog.controller.events import (
    MetadataFollowed,
    ResponseReceived,
)
from replog.messages import (
    DamagedLog,
    RegisterBrokerResponse,
)
from replog.registrations import BrokerRegistration, MetadataDelta

TOPIC_ID = uuid.UUID(int=7)


def sent(effects, kind=object):
    """Requests of a kind, with their ids."""
    return [
        (effect.request_id, effect.request)
        for effect in effects
        if isinstance(effect, SendToController) and isinstance(effect.request, kind)
    ]


def damaged_log(name, partition_epoch=4):
    return DamagedLog(
        topic_partition=name, topic_id=TOPIC_ID, partition_epoch=partition_epoch, leader_epoch=0
    )


def registered(session, now_ms=0, epoch=7):
    """A session that has its epoch and has not followed the metadata so far."""
    ((asked, _),) = sent(session.start(-1, (), now_ms))
    answer = RegisterBrokerResponse(broker_epoch=epoch, version=epoch)
    return session.step(ResponseReceived(request_id=asked, response=answer), now_ms)


def delta(version, *, fenced=False, epoch=7):
    broker = BrokerRegistration(broker_id=1, broker_epoch=epoch, fenced=fenced)
    return MetadataDelta(version=version, brokers=(broker,))


def running(session, now_ms=0):
    """A session that is unfenced, before its first heartbeat."""
    registered(session, now_ms)
    session.step(MetadataFollowed(delta(8)), now_ms)
