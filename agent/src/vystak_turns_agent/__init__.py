"""Serves any LangGraph graph as a durable agent."""
