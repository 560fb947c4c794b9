"""The shell around the pure core: clocks, transports, and the carrying out of effects."""
