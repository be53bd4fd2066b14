"""The commands of `ec1`, one module per subject; `ec1/cli.py` assembles them."""
