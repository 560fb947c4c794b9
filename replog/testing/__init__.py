"""For tests of programs that use replog, and of replog: a pytest fixture, and the simulator."""
