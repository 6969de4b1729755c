"""Light client of turn control: dispatch a turn, ask for it, follow it."""
