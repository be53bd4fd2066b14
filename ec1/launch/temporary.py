"""A folder for temporary files in which sockets can be made.

Linux takes 107 bytes of a socket's path (`unix(7)`). Python's fork server, Dagster and vLLM make sockets below the
temporary folder, and clusters give each job one with a long name: a night could not begin there.
"""

import hashlib
import os
import tempfile
from pathlib import Path

_LONGEST = 107 - len("/ec1-12345678/") - 36
"""Bytes: the longest of those names is a UUID, vLLM's, in the folder that `warden.py` makes."""


def temporary_folder() -> str:
    """The folder of this process's temporary files; a link to it, with a short name, where its own is too long."""
    folder = tempfile.gettempdir()
    if len(os.fsencode(folder)) <= _LONGEST:
        return folder
    link = Path("/tmp", f"ec1-{os.getuid()}-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]}")
    try:
        link.symlink_to(folder)
    except OSError:
        # Ours from before; of somebody else's nothing is taken.
        if not link.is_symlink() or link.lstat().st_uid != os.getuid() or link.readlink() != Path(folder):
            return folder
    return str(link)
