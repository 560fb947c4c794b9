"""Nothing of this module has a Python face; record_encoder.encode() is it."""
