"""Turn control: keeps agent turns alive across crashes of every process."""
