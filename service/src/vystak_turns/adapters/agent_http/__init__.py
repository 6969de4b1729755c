"""LangGraph agents over HTTP and server-sent events: see `agent.HttpAgent`."""
