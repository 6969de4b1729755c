"""What turn control does: methods, drivers, recovery. I/O only through `vystak_turns.ports`."""
