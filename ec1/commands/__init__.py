"""The commands of `ec1`, one module a subject; `ec1/cli.py` puts them together."""
