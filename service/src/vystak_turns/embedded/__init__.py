"""The whole stack as processes of one machine, without Docker."""
