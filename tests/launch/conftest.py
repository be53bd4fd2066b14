"""The stores that workers are tried on."""

from gcs_emulator import bucket, gcs_server, store

__all__ = ["bucket", "gcs_server", "store"]
