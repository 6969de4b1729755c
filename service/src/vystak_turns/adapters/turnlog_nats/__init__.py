"""Turn logs in JetStream: see `log.NatsTurnLog` and `streams.Streams`."""
