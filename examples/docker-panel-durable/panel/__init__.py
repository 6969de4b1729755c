"""An example panel: conversations with one agent, on a web page that shows turns survive."""
