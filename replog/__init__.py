"""replog: Kafka's replicated commit log as a Python library."""
