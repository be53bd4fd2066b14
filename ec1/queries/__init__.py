"""What faces ask: the command line, the MCP server and pages are views of these answers.

Belongs here: questions that only read, each answered by a frozen record. Does not: how an answer is shown
(`ec1.commands`), and whatever changes something (`ec1.night`, `ec1.adapters`); the few changes that a page may make
are named in `doors`.
"""
