"""The messages of a Maildir. https://cr.yp.to/proto/maildir.html"""

from collections.abc import Iterator
from pathlib import Path

from ec1.documents.sources.source import Item
from ec1.errors import DeferredError

_WHERE = ("cur", "new")


class Maildir:
    """A `Source`. A message keeps its name when it is read or answered: those flags stand in the file's."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def items(self) -> Iterator[Item]:
        try:
            # Folders inside are called `.Archive.2024`, or have plain names one in another.
            folders = sorted({found.parent for where in _WHERE for found in self._path.rglob(where) if found.is_dir()})
            if not folders:
                raise DeferredError(f"{self._path} is not a Maildir: it holds neither `cur` nor `new`")
            for folder in folders:
                box = "/".join(part.lstrip(".").replace(".", "/") for part in folder.relative_to(self._path).parts)
                for where in _WHERE:
                    if (folder / where).is_dir():
                        yield from self._messages(folder / where, f"{box}/" if box else "")
        except OSError as error:
            raise DeferredError(f"{self._path} cannot be listed: {error.strerror}") from None

    def _messages(self, folder: Path, box: str) -> Iterator[Item]:
        for file in folder.iterdir():
            if not file.name.startswith("."):
                found = file.stat()
                name = f"{box}{file.name.partition(':')[0]}.eml"
                yield Item(
                    name, f"{found.st_size}-{found.st_mtime_ns}", found.st_mtime_ns, file.read_bytes, found.st_size
                )
