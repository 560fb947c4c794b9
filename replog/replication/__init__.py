"""The replication protocol of one partition as pure code: an event and the time in, effects out."""
