"""Six brokers and a partition on three of them, for tests that move its replicas."""

from replog.admin_messages import (
    ListReassignmentsRequest,
    Reassignment,
    ReassignPartitionsRequest,
)
from replog.types import TopicPartition
from tests.controller.conversation import Controller

NAME = TopicPartition("t", 0)


def six_brokers():
    controller = Controller()
    controller.start(1, 2, 3, 4, 5, 6)
    controller.create(replicas=(1, 2, 3))
    return controller


def reassign(controller, replicas, name=NAME, **more):
    asked = Reassignment(topic_partition=name, replicas=replicas)
    answer = controller.ask(ReassignPartitionsRequest(partitions=(asked,), **more))
    return answer.partitions[0] if answer.partitions else answer


def progress(controller):
    return controller.ask(ListReassignmentsRequest()).reassignments
