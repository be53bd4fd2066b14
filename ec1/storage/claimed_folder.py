"""How a folder appears at once in a bucket, where nothing can be renamed: a claim first, the seal last.

Belongs here: the order of the writes. Does not: how one object is written (`gcs.py`, `s3.py`).
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from ec1.storage.store import AlreadyExists, ObjectStore, checked_key

_CLAIM = ".claim"


def put_claimed_folder(
    store: ObjectStore,
    prefix: str,
    files: Mapping[str, Path],
    *,
    seal: str,
    claim: str,
    holds: Callable[[str, Path], bool],
) -> None:
    """As `ObjectStore.put_folder` says. Whoever writes the claim first owns the folder; the seal is written last.

    `holds(key, path)` tells whether the object has the bytes of the file.
    """
    if seal not in files:
        raise ValueError(f"the seal {seal!r} is not among the files")
    checked_key(prefix)
    if store.exists(f"{prefix}/{seal}"):
        raise AlreadyExists(f"{prefix} is already in the bucket")
    try:
        store.put_bytes(f"{prefix}/{_CLAIM}", claim.encode(), if_absent=True)
    except AlreadyExists:
        if store.get_bytes(f"{prefix}/{_CLAIM}") != claim.encode():
            raise
    for name, path in files.items():
        if name == seal:
            continue
        try:
            store.put_file(f"{prefix}/{name}", path, if_absent=True)
        except AlreadyExists:
            if not holds(f"{prefix}/{name}", path):
                raise
    store.put_file(f"{prefix}/{seal}", files[seal], if_absent=True)
