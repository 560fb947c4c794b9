"""Spark over replog's files: the data source `replog`, and sessions for the command line."""
