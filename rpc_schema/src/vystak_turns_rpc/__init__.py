"""The wire of turn control as types: JSON-RPC, turn events, subjects, stream settings."""
