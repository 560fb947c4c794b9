"""What must outlive a crash beside the segments: small files, logs with them, log directories."""
