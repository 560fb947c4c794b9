"""Kafka's messages: what their fields are, and how they are written as bytes; nothing is sent."""

from __future__ import annotations
