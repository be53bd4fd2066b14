"""The stores that workers are tried on, and a machine that ssh reaches."""

from gcs_emulator import bucket, gcs_server, store
from ssh_server import ssh_server

__all__ = ["bucket", "gcs_server", "ssh_server", "store"]
