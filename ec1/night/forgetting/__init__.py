"""Forgetting a person, a source or a text: one command for the whole home (docs/forgetting.md)."""
