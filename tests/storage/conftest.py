"""The stores that every test here runs against."""

from gcs_emulator import bucket, gcs_server, store

__all__ = ["bucket", "gcs_server", "store"]
