"""The wire of durable agent turns as types: envelopes, methods, events, subjects."""
