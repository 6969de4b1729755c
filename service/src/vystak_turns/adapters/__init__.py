"""The world behind the ports: SQLite, NATS, HTTP. Adapters never import each other."""
