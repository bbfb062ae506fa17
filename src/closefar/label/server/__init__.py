"""The server: who may come in, who is asked what, and the pages."""
