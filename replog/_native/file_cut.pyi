"""Native callers only; see the .pxd."""
