"""The decisions: pure values and tables. No I/O, clock, randomness, logging or await."""
