"""Files of text as people bring them: packed or not, in UTF-8, UTF-16 or Windows' western encoding, line by line.

Belongs here: which bytes a file holds and what text they are. Does not: what the lines mean (containers).
"""

import codecs
import contextlib
import io
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

MAX_LINE_BYTES = 16 * 2**20
"""As much as the corpus reads (`index`): a longer line cannot be a row for a model."""

_PACKED = (".gz", ".bz2", ".zst", ".xz")
_BLOCK = 2**20
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Bytes that Windows-1252 has no letter for, or that stand in no western word: then it is another encoding, or damage.
_UNLIKELY = re.compile(rb"[\x81\x8d\x8f\x90\x9d\xd0\xd7\xdd\xde\xf0\xf7\xfd-\xff\x00-\x08]")
_RUN = re.compile(rb"[\x80-\xff]{4}")


def plain_name(path: Path) -> str:
    """The name of a file in lower case, without the ending that says how it is packed."""
    name = path.name.lower()
    return next((name.removesuffix(ending) for ending in _PACKED if name.endswith(ending)), name)


class PackedText:
    """The lines of one file. `encoding` is what they were in, once that is known not to be UTF-8."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.encoding: str | None = None
        self._known = False

    def lines(self, limit: int = MAX_LINE_BYTES) -> Iterator[str | None]:
        """Every line with its end; None for one that is longer than `limit` bytes or is not text."""
        with self._opened() as stream:
            while raw := stream.readline(limit):
                if len(raw) == limit and not raw.endswith(b"\n"):
                    while (raw := stream.readline(_BLOCK)) and not raw.endswith(b"\n"):
                        pass
                    yield None
                    continue
                yield self._decoded(raw)

    def text(self) -> str | None:
        """The whole file; None if it is not text."""
        with self._opened() as stream:
            return self._decoded(stream.read())

    @contextlib.contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        """The bytes of the file as UTF-8, unless they have no mark and are something else."""
        with contextlib.ExitStack() as stack:
            stream = stack.enter_context(_unpacked(self._path))
            head = stream.peek(4)[:4]
            encoding = next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)
            if encoding is None and len(head) == 4 and head.count(0) == 2 and (head[0] == 0) != (head[1] == 0):
                encoding = "utf-16-be" if head[0] == 0 else "utf-16-le"
            if encoding is not None:
                self.encoding = encoding
                yield stack.enter_context(_as_utf8(stream, encoding))
                return
            if head.startswith(codecs.BOM_UTF8):
                stream.read(3)
            yield stream

    def _decoded(self, raw: bytes) -> str | None:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            if self.encoding is None and not self._known:
                self._known = True
                self.encoding = "cp1252" if self._is_western() else None
            return raw.decode("cp1252") if self.encoding == "cp1252" else None

    def _is_western(self) -> bool:
        """Whether no line is UTF-8 beyond ASCII, and all look like western words; one that is not is a damaged line."""
        with _unpacked(self._path) as stream:
            while raw := stream.readline(MAX_LINE_BYTES):
                if raw.isascii():
                    continue
                with contextlib.suppress(UnicodeDecodeError):
                    raw.decode()
                    return False
                if _UNLIKELY.search(raw) or _RUN.search(raw):
                    return False
        return True


@contextlib.contextmanager
def _unpacked(path: Path) -> Iterator[io.BufferedReader]:
    import bz2
    import gzip
    import lzma

    ending = path.suffix.lower()
    if ending == ".zst":
        import pyarrow as pa

        with pa.OSFile(str(path)) as file, pa.CompressedInputStream(file, "zstd") as stream:
            yield io.BufferedReader(stream)
            return
    openers: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    with openers.get(ending, open)(path, "rb") as stream:
        yield stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)


@contextlib.contextmanager
def _as_utf8(stream: IO[bytes], encoding: str) -> Iterator[IO[bytes]]:
    decoder = codecs.getincrementaldecoder(encoding)()
    with tempfile.TemporaryFile() as copy:
        while block := stream.read(_BLOCK):
            copy.write(decoder.decode(block).encode())
        copy.write(decoder.decode(b"", final=True).encode())
        copy.seek(0)
        yield copy
