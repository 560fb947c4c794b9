"""Writes the codecs of Kafka's messages from a table of their fields, when replog is built.

Needs nothing of replog, since replog's native modules may not be built yet.
"""
