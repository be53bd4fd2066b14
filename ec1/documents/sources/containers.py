"""Files that hold documents: archives, mailboxes, exports with a record a line, address books, calendars, lists of
records, mails with attachments. Each is a source of its own.

Belongs here: what is in such a file, and how much may come out of it. Does not: what a mail itself says
(`ec1.documents.convert`), copying (`copies.py`), and containers in containers (`unpack.py`). ZIP is `zipfile`'s work,
mail `email`'s, and Outlook's compound files are `olefile`'s; what comes out is bounded before it is read.
"""

import contextlib
import email.message
import errno
import hashlib
import json
import mailbox
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import olefile

from ec1.documents.mail_text import BROKEN_MAIL, file_name, message_of
from ec1.documents.media_types import MEDIA_TYPES
from ec1.documents.outlook_text import INNER_MAIL, as_mail
from ec1.documents.records import records
from ec1.documents.sources.cards import contacts, events
from ec1.documents.sources.source import Item
from ec1.errors import RejectedError
from ec1.streams import LISTS, RECORD

_BROKEN_MAIL = (*BROKEN_MAIL, OSError, mailbox.Error, struct.error)
_BROKEN_ZIP = (
    *(zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, ValueError, RuntimeError),
    struct.error,
)
# A ZIP archive's directory: its end record, the one of large archives, and how far from the end they may stand.
_END, _LARGE_END, _TAIL = b"PK\5\6", b"PK\6\6", 2**16 + 128
_ENTRY_BYTES = 1024
"""A generous entry of a ZIP archive's directory."""
# Of files that are attached without a name, as scanners and fax machines send them.
_SUFFIXES = {each: suffix for suffix, each in reversed(MEDIA_TYPES.items()) if not each.startswith("text/")}
# The properties of an attachment in an Outlook mail: its names, long and short, and its bytes ([MS-OXMSG] 2.2.2).
_ATTACHMENT, _BYTES = "__attach_version1.0_#", "__substg1.0_37010102"
_NAMES = {
    "__substg1.0_3707001F": "utf-16-le",
    "__substg1.0_3707001E": "cp1252",
    "__substg1.0_3704001F": "utf-16-le",
    "__substg1.0_3704001E": "cp1252",
}


class Container(contextlib.ExitStack):
    """One such file, opened; a `Source`. What it holds is dated as the file is.

    `items` raises RejectedError if the file as a whole is none of its kind, or holds more than `max_files` or
    `max_bytes`; OSError if the disk does not give it. One item may have `most` bytes.
    """

    def __init__(self, path: Path, modified_ns: int, *, max_files: int, max_bytes: int, most: int) -> None:
        super().__init__()
        self._path = path
        self._modified_ns = modified_ns
        self._max_files, self._max_bytes, self._most = max_files, max_bytes, most

    def items(self) -> Iterator[Item]:
        suffix = self._path.suffix.lower()
        own: dict[str, Callable[[], Iterator[Item]]] = {
            ".zip": self._zipped,
            ".mbox": self._messages,
            ".msg": self._outlook,
            ".jsonl": self._records,
            ".ndjson": self._records,
            ".vcf": partial(self._each_of, contacts),
            ".ics": partial(self._each_of, events),
            **dict.fromkeys(LISTS, partial(self._each_of, records)),
        }
        found = own.get(suffix, self._attached)()
        count = total = 0
        for item in found:
            count, total = count + 1, total + (item.size or 0)
            if count > self._max_files:
                raise RejectedError(f"more than {self._max_files:,} files (documents.unpacking.max_files)")
            if total > self._max_bytes:
                raise RejectedError(f"unpacked more than {self._max_bytes:,} bytes (documents.unpacking.max_mb)")
            yield item

    def _zipped(self) -> Iterator[Item]:
        try:
            if _directory_bytes(self._path) > self._max_files * _ENTRY_BYTES:
                raise RejectedError(f"more than {self._max_files:,} files (documents.unpacking.max_files)")
            archive = self.enter_context(zipfile.ZipFile(self._path))
        except _BROKEN_ZIP as error:
            _raise_if_the_disks(error)
            raise RejectedError(f"not a ZIP archive that can be read: {_line(error)}") from None
        for info in archive.infolist():
            if not info.is_dir() and not stat.S_ISLNK(info.external_attr >> 16):
                # What comes out is never more than the size that stands here: `zipfile` stops there.
                version, size = f"{info.CRC:08x}-{info.file_size}", info.file_size
                yield Item(info.filename, version, self._modified_ns, partial(_member, archive, info), size)

    def _messages(self) -> Iterator[Item]:
        """The messages of a mailbox, each under a name that its bytes give it."""
        box = self.enter_context(contextlib.closing(mailbox.mbox(self._path, create=False)))

        def read(key: str) -> bytes:
            with box.get_file(key) as file:
                return file.read(self._most + 1)

        try:
            for key in box.iterkeys():
                data = read(key)
                digest = hashlib.sha256(data).hexdigest()
                yield Item(f"{digest[:16]}.eml", digest, self._modified_ns, partial(read, key), len(data))
        except _BROKEN_MAIL as error:
            _raise_if_the_disks(error)
            raise RejectedError(f"not a mailbox that can be read: {_line(error)}") from None

    def _records(self) -> Iterator[Item]:
        """The records of an export with one in each line, each under a name that its bytes give it, once."""
        file = self.enter_context(self._path.open("rb"))
        start, seen = 0, set()
        # A line of any length is read in parts, so that a long one takes no memory.
        while line := file.readline(self._most + 1):
            whole = line
            size = len(line)
            while not line.endswith(b"\n") and (line := file.readline(self._most + 1)):
                size += len(line)
            digest = hashlib.sha256(whole.strip()).hexdigest()
            if whole.strip() and digest not in seen:
                seen.add(digest)
                read = partial(_part, self._path, start, size)
                yield Item(f"{digest[:16]}.json", digest, self._modified_ns, read, size)
            start += size

    def _each_of(self, records_in: Callable[[Path], Iterable[Mapping[str, Any]]]) -> Iterator[Item]:
        """The records of an address book, a calendar or a list, each under a name that its content gives it, once."""
        every = dict.fromkeys(json.dumps(record).encode() for record in records_in(self._path))
        for data in every:
            digest = hashlib.sha256(data).hexdigest()
            yield Item(f"{digest[:16]}{RECORD}", digest, self._modified_ns, partial(bytes, data), len(data))

    def _attached(self) -> Iterator[Item]:
        """The attachments of a mail. Where its structure is broken there are none; its text is read all the same."""
        data = self._path.read_bytes()
        if b"multipart/" not in data.lower():
            return
        try:
            message = message_of(data)
            for number, part in enumerate(_parts(message), 1):
                if (payload := _attachment(part)) is not None:
                    name = _name(part) or f"part-{number}{_SUFFIXES.get(part.get_content_type(), '')}"
                    yield self._attachment_of(name, payload)
        except _BROKEN_MAIL as error:
            _raise_if_the_disks(error)
            return

    def _outlook(self) -> Iterator[Item]:
        """The files that are attached to an Outlook mail, and the mails, without what is attached to those."""
        try:
            mail = self.enter_context(olefile.OleFileIO(self._path))
            for folder in sorted({path[0] for path in mail.listdir() if path[0].startswith(_ATTACHMENT)}):
                name = _outlook_name(mail, folder) or f"part-{folder.removeprefix(_ATTACHMENT)}"
                if mail.exists([folder, _BYTES]):
                    yield self._attachment_of(name, mail.openstream([folder, _BYTES]).read())
                elif mail.exists([folder, INNER_MAIL]):
                    yield self._attachment_of(f"{name}.eml", as_mail(mail, (folder, INNER_MAIL)))
        except _BROKEN_MAIL as error:
            _raise_if_the_disks(error)
            return

    def _attachment_of(self, name: str, payload: bytes) -> Item:
        digest = hashlib.sha256(payload).hexdigest()
        return Item(name, digest, self._modified_ns, partial(bytes, payload), len(payload))


def _part(path: Path, start: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(size).strip()


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    if info.flag_bits & 1:
        raise RejectedError("encrypted")
    try:
        return archive.read(info)
    except _BROKEN_ZIP as error:
        _raise_if_the_disks(error)
        raise RejectedError(f"cannot be unpacked: {_line(error)}") from None


def _directory_bytes(path: Path) -> int:
    """The size that a ZIP archive says its directory has; `zipfile` keeps an object for each entry of it."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        tail = file.read()
    if (large := tail.rfind(_LARGE_END)) >= 0 and len(tail) >= large + 56:
        return int(struct.unpack_from("<Q", tail, large + 40)[0])
    end = tail.rfind(_END)
    return int(struct.unpack_from("<I", tail, end + 12)[0]) if end >= 0 and len(tail) >= end + 22 else 0


def _parts(message: email.message.Message) -> Iterator[email.message.Message]:
    """The parts of a mail at any depth, and not those of a mail that is attached to it."""
    yield message
    if message.is_multipart() and message.get_content_type() != "message/rfc822":
        for part in message.get_payload():
            if isinstance(part, email.message.Message):
                yield from _parts(part)


def _attachment(part: email.message.Message) -> bytes | None:
    """The bytes of a part that is a file, or a mail that is attached as such; None of any other."""
    if part.get_content_type() == "message/rfc822":
        inner = part.get_payload(0) if part.is_multipart() else None
        return inner.as_bytes() if isinstance(inner, email.message.Message) else None
    if part.is_multipart() or (_name(part) is None and part.get_content_type() not in _SUFFIXES):
        return None
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else None


def _name(part: email.message.Message) -> str | None:
    """A part's file name, as a name and not as a place."""
    return _last_part(file_name(part) or "") or None


def _outlook_name(mail: Any, folder: str) -> str:
    """The name of an attachment of an Outlook mail; "" if it has none."""
    found = [(stream, coding) for stream, coding in _NAMES.items() if mail.exists([folder, stream])]
    texts = (mail.openstream([folder, stream]).read().decode(coding, "replace") for stream, coding in found)
    return next(filter(None, (_last_part(text.rstrip("\0")) for text in texts)), "")


def _last_part(name: str) -> str:
    return name.replace("\\", "/").rpartition("/")[2]


def _raise_if_the_disks(error: Exception) -> None:
    """Raise an error of the disk or of a share, which says nothing of the file: another night it may be there."""
    # The others are a library's own, and EINVAL is that of a place which a broken file names.
    if isinstance(error, OSError) and error.errno not in {None, errno.EINVAL}:
        raise error


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
