"""The native protocol as pure functions, and the description of a server's models."""
