"""What changed in the document root since the ledger, as of a night. The reading of a document's text is `parse.py`'s.

Belongs here: listing the streams, comparing with the ledger, and the rules that protect the graph from a listing that
cannot be right. Nothing here writes to the ledger or the graph.

Names that start with a dot (editors' leftovers, `.git`) or `~$` are not documents. What archives,
mailboxes and mails hold is taken out into a folder of its own (`ec1.documents.sources.unpack`) and listed as if it lay
there.
"""

import datetime as dt
import errno
import logging
import os
import stat as stat_bits
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ec1.documents.ledger import DocumentKey, Fingerprints, LedgerEntry, Status
from ec1.documents.listing import DocumentVersion, Listing, Postponed, Rejected
from ec1.documents.scan_cache import Row, ScanCache
from ec1.documents.settings import DocumentSettings
from ec1.documents.sources.copies import Copies
from ec1.documents.sources.opened import Opener, OpeningLimits
from ec1.documents.sources.unpack import Seen, is_container, may_hold_others, unpack
from ec1.documents.steady import Unreadable, Unsteady, read_steadily
from ec1.errors import DeferredError, InputError, PermanentError
from ec1.files import digest_of
from ec1.streams import CONVERTED, LISTS, WITH_ATTACHMENTS, Stream, is_hidden

log = logging.getLogger(__name__)

# A file written this shortly before it was read may be written again with the same mtime, so its row is not trusted
# ("racy git"); two seconds is the coarsest time stamp in use (FAT).
_RACY_NS = 2 * 10**9
# A stream that loses all of this many documents or more at once is taken for a lost mount, however small its share.
_WHOLE_STREAM = 10
_LEADS_OUT = "a link that leads out of the document root"
_LEADS_TO_MORE = "a link to what has more access labels than the place where it stands"


def scan_documents(
    root: Path,
    ledger: Mapping[DocumentKey, LedgerEntry],
    fingerprints: Fingerprints,
    *,
    night: str,
    as_of: dt.datetime,
    retract_vanished: bool,
    settings: DocumentSettings,
    cache: Path,
    unpacked: Path | None = None,
    streams: Mapping[str, Stream] | None = None,
    verify: bool = False,
) -> Listing:
    """List the streams below `root` and compare them with the ledger. `streams`: only these; default: the settings'.

    A document needs work if its content or its extractor's fingerprint (`fingerprints`) differs from its ledger row, or
    if the row is deferred. A file modified after `as_of` (aware) is not visible: it is left to its own night.
    `retract_vanished=False`, for a night made up later, reports no deletion. `cache` is a folder for
    what may be lost, and `unpacked` one for what archives and mails hold (None: they are not opened). `verify` reads
    every file, as happens automatically every `settings.verify_every_days`.

    Raises InputError (no such root, and none known), DeferredError (a folder could not be listed, so nothing is said
    about deletions), PermanentError (so much is gone that it looks like a lost mount).
    """
    if as_of.tzinfo is None:
        raise InputError(f"as_of {as_of} has no time zone")
    scan = _Scan(root, ledger, fingerprints, _nanoseconds(as_of), settings, streams or settings.all_streams)
    with ScanCache(cache / f"scan-{_stand_in(scan.root)[:12]}.sqlite") as rows, ExitStack() as stack:
        copies = stack.enter_context(Copies(unpacked)) if unpacked is not None and scan.opens_files else None
        period = settings.verify_every_days * 86_400 * 10**9
        due = rows.verified_ns is None or (period and scan.as_of_ns >= rows.verified_ns + period)
        scan.run(rows, copies, verify=verify or bool(due))
        if verify or due:
            rows.verified_ns = scan.as_of_ns
    vanished = scan.vanished() if retract_vanished else []
    return Listing(
        night=night,
        as_of=as_of.astimezone(dt.UTC),
        changed=tuple(sorted(scan.changed, key=_by_key)),
        vanished=tuple(sorted(vanished)),
        rejected=tuple(sorted(scan.rejected, key=_by_key)),
        unchanged=scan.unchanged,
        later=scan.later,
        postponed=tuple(sorted(scan.postponed, key=_by_key)),
        hashed=scan.hashed,
    )


def _by_key(item: Any) -> tuple[str, str]:
    return (item.key.stream, item.key.path)


def _nanoseconds(moment: dt.datetime) -> int:
    # In integers: a float of seconds since 1970 is off by hundreds of nanoseconds.
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1) * 1000


@dataclass
class _Scan:
    """The state of one scan.

    `_known` holds, per stream, the paths of the live ledger rows that were not seen yet, each with the content that
    needs no work, or with "" where any content does.
    """

    given_root: Path
    ledger: Mapping[DocumentKey, LedgerEntry]
    fingerprints: Fingerprints
    as_of_ns: int
    settings: DocumentSettings
    streams: Mapping[str, Stream]
    containers: list[Seen] = field(default_factory=list)
    changed: list[DocumentVersion] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    postponed: list[Postponed] = field(default_factory=list)
    unchanged: dict[str, int] = field(default_factory=dict)
    later: int = 0
    hashed: int = 0
    opened: set[DocumentKey] = field(default_factory=set)
    """Files that the ledger has, and that now hold documents: read or rejected by other rules, or with one record."""

    def __post_init__(self) -> None:
        self.root = self.given_root.resolve()
        self.started_ns = time.time_ns()
        self.unchanged = dict.fromkeys(self.streams, 0)
        self._known: dict[str, dict[str, str]] = {name: {} for name in self.streams}
        streams = {name: (self.fingerprints.of_stream[name], rows) for name, rows in self._known.items()}
        others = self.fingerprints.of_content
        deleted, deferred = Status.DELETED, Status.DEFERRED
        for key, entry in self.ledger.items():
            status = entry.status
            if status is not deleted and key.stream in streams:
                fingerprint, rows = streams[key.stream]
                if entry.content_sha256 in others:
                    fingerprint = others[entry.content_sha256][key.stream]
                settled = status is not deferred and entry.fingerprint == fingerprint
                rows[key.path] = entry.content_sha256 if settled else ""
        self._live = {name: len(rows) for name, rows in self._known.items()}
        self._check_folders()

    def _check_folders(self) -> None:
        if not _is_folder(self.root):
            if any(self._live.values()):
                raise self._lost(
                    f"{self.given_root} is missing, and the ledger knows {sum(self._live.values())} documents"
                )
            raise InputError(
                f"the document root {self.given_root} does not exist: create it or set documents.root in the deployment"
            )
        for name, count in self._live.items():
            folder = self.streams[name].folder
            if count and not _is_folder(self.root / folder):
                raise self._lost(f"{self.given_root / folder} is missing, and the ledger knows {count} documents in it")

    def _lost(self, what: str) -> PermanentError:
        return PermanentError(
            f"{what}: this looks like a lost mount, so nothing was retracted. Mount it and run the night again; if the "
            "deletion is meant, leave an empty folder there and set documents.max_vanished_share to 1 for one night"
        )

    @property
    def opens_files(self) -> bool:
        """Whether some stream reads files that hold others."""
        return any(may_hold_others(suffix) for stream in self.streams.values() for suffix in stream.suffixes)

    def run(self, cache: ScanCache, copies: Copies | None, *, verify: bool) -> None:
        """Walk all streams, then what was taken out of their files. Raises DeferredError if a folder cannot be
        listed."""
        listed: set[str] = set()
        settings, conversion = self.settings, self.settings.conversion
        opening = OpeningLimits(conversion.max_seconds, conversion.max_memory_mb)
        if copies is not None:
            # Files that look unchanged are opened again where what they hold is not there, or by other rules.
            chosen = {name: (stream.suffixes, stream.pattern) for name, stream in sorted(self.streams.items())}
            limits = (settings.unpacking.model_dump(), asdict(opening), settings.max_bytes, LISTS)
            verify = not copies.made_by(digest_of([chosen, limits])) or verify
        for stream in self.streams.values():
            rules = int(digest_of([stream.suffixes, stream.pattern])[:15], 16)
            anew = cache.rules_of(stream.name) != rules
            walk = _Walk(self, stream, cache, verify, self._known[stream.name], self.root, anew)
            walk.run([stream.folder], listed)
            if anew:
                cache.set_rules(stream.name, rules)
            if stream.copied:
                with Copies(self.root) as brought:
                    walk.refuse(brought.problems(stream.name))
        if copies is not None:
            with Opener(opening) as opener:
                unread = unpack(copies, self.containers, settings.unpacking, settings.max_bytes, opener, root=self.root)
            for stream in self.streams.values():
                self._unpacked(stream, copies, cache, verify, listed)
            for container, reason in unread:
                self._leave(container.stream, container.path, reason)
        cache.keep_only(listed)

    def _unpacked(self, stream: Stream, copies: Copies, cache: ScanCache, verify: bool, listed: set[str]) -> None:
        walk = _Walk(self, stream, cache, verify, self._known[stream.name], copies.root.resolve())
        walk.run([folder for folder, (_, name) in copies.folders().items() if name == stream.name], listed)
        walk.refuse(copies.problems(stream.name))

    def modified_ns(self, found: os.stat_result) -> int:
        """When a file was modified. A date in the future tells nothing: then it is when the file came here."""
        return found.st_mtime_ns if found.st_mtime_ns <= self.started_ns else found.st_ctime_ns

    def is_later(self, found: os.stat_result) -> bool:
        """Whether a file belongs to a later night."""
        return self.modified_ns(found) > self.as_of_ns

    def _leave(self, stream: Stream, container: str, reason: str) -> None:
        """Say nothing tonight of what a container held."""
        self.postponed.append(Postponed(DocumentKey(stream.name, container), reason))
        self.opened.discard(DocumentKey(stream.name, container))
        rows = self._known[stream.name]
        for path in [path for path in rows if path.startswith(f"{container}/")]:
            del rows[path]

    def vanished(self) -> list[DocumentKey]:
        """The live documents that a complete listing did not show, or that are none any more. Raises PermanentError if
        those that it did not show are too many."""
        gone = {
            name: [path for path in rows if not (self.streams[name].takes(path) and self._appeared_meanwhile(path))]
            for name, rows in self._known.items()
        }
        live, missing = sum(self._live.values()), sum(map(len, gone.values()))
        allowed = self.settings.max_vanished_share
        if live and missing / live > allowed:
            raise self._lost(
                f"{missing} of {live} known documents are gone from {self.given_root} ({missing / live:.0%}, more than "
                f"documents.max_vanished_share {allowed:.0%})"
            )
        for name, count in self._live.items():
            if allowed < 1 and count >= _WHOLE_STREAM and len(gone[name]) == count:
                raise self._lost(f"all {count} documents of {self.given_root / self.streams[name].folder} are gone")
        return [*self.opened, *(DocumentKey(name, path) for name, paths in gone.items() for path in paths)]

    def _appeared_meanwhile(self, path: str) -> bool:
        # An editor that saves by delete and create, or by rename, may be missed by a listing in progress.
        try:
            found = (self.root / path).stat()
        except (OSError, ValueError):
            return False
        recent = max(found.st_mtime_ns, found.st_ctime_ns) >= self.started_ns - _RACY_NS
        return recent and stat_bits.S_ISREG(found.st_mode)


@dataclass
class _Walk:
    """The walk over one stream. Paths are relative to the document root, with forward slashes."""

    scan: _Scan
    stream: Stream
    cache: ScanCache
    verify: bool
    known: dict[str, str]
    root: Path
    chooses_anew: bool = False
    """Whether the stream chose its files by other rules before: what the cache knows may be none of them now."""

    def run(self, folders: Iterable[str], listed: set[str]) -> None:
        """Walk real folders first, then links to folders: what is reachable both ways keeps its real name."""
        self._visited: set[tuple[int, int]] = set()
        self._links: list[str] = []
        pending = []
        for name in folders:
            folder = self.root / name
            if not _is_folder(folder):
                continue
            real = folder.resolve()
            if not real.is_relative_to(self.root):
                self._reject(name, _LEADS_OUT, self._link_stand_in(folder))
            elif real != folder and self._needs_more_labels(name, real):
                self._reject(name, _LEADS_TO_MORE, self._link_stand_in(folder))
            else:
                pending.append(name)
        while pending or self._links:
            if not pending:
                self._links.sort(reverse=True)
                pending.append(self._links.pop())
            directory = pending.pop()
            pending.extend(self._directory(directory))
            listed.add(directory)

    def refuse(self, problems: Mapping[str, tuple[str, str]]) -> None:
        """Reject what could not be taken out of a file: by path, its version and the reason."""
        for path, (version, reason) in problems.items():
            ledger_row = self.scan.ledger.get(DocumentKey(self.stream.name, path))
            self._reject(path, reason, _stand_in(version, reason), ledger_row)

    def _directory(self, directory: str) -> list[str]:
        """Work through one folder; return the folders in it."""
        path = f"{self.root}/{directory}"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                self._reject(directory, "the path is too long for this system", _stand_in(directory))
                return []
            raise _incomplete(path, error) from error
        try:
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) in self._visited:
                return []
            self._visited.add((status.st_dev, status.st_ino))
            # Relative to an open folder, each stat is a short look-up: a quarter less time than with whole paths.
            with os.scandir(descriptor) as entries:
                return self._entries(directory, entries)
        except OSError as error:
            raise _incomplete(path, error) from error
        finally:
            os.close(descriptor)

    def _entries(self, directory: str, entries: Iterable[os.DirEntry[str]]) -> list[str]:
        # The hot loop: about half a microsecond a file, beside the two of its listing and stat. What the cache knows by
        # name was a plain file with a good name; if it is none now, its stat differs, and the slow way finds out.
        known, as_of_ns = self.known, self.scan.as_of_ns
        max_bytes, trusted, anew = self.scan.settings.max_bytes, not self.verify, self.chooses_anew
        utf8 = _is_utf8(directory)
        cached = self.cache.load(directory) if utf8 else {}
        changes: dict[str, Row | None] = {}
        folders: list[str] = []
        prefix = "" if directory == "." else f"{directory}/"
        same = 0
        for entry in entries:
            name = entry.name
            path = prefix + name
            row = cached.pop(name, None)
            try:
                if row:
                    found = entry.stat(follow_symlinks=False)
                    settled = known.pop(path, None)
                    if (
                        row == (found.st_size, found.st_mtime_ns, found.st_ino, settled)
                        and row[1] <= as_of_ns
                        and row[0] <= max_bytes
                        and trusted
                        and not (anew and not self._takes(path))
                    ):
                        same += 1
                        continue
                    if settled is not None:
                        known[path] = settled
                kept = None
                if not entry.is_dir(follow_symlinks=False):
                    kept = self._entry(entry, path, utf8, row)
                elif not is_hidden(name):
                    folders.append(path)
            except FileNotFoundError:
                kept = None
            if kept != row:
                changes[name] = kept
        self.scan.unchanged[self.stream.name] += same
        changes.update(dict.fromkeys(cached))
        if utf8 and changes:
            self.cache.update(directory, changes)
        return folders

    def _entry(self, entry: os.DirEntry[str], path: str, utf8: bool, row: Row | None) -> Row | None:
        """Deal with what is new or different; `row` is what the cache has for it. Return what it should have."""
        name, target = entry.name, path
        if is_hidden(name):
            return None
        plain = entry.is_file(follow_symlinks=False)
        if not self._takes(path):
            if entry.is_symlink():
                self._folder_link(path)
            return None
        if plain and utf8 and _is_utf8(name):
            found = entry.stat(follow_symlinks=False)
        else:
            resolved = self._special(path)
            if not resolved:
                return None
            target, found = resolved
        live = self.known.pop(path, None) is not None
        if self.scan.is_later(found):
            self.scan.later += 1
            return row
        ledger_row = self.scan.ledger.get(DocumentKey(self.stream.name, path)) if live else None
        if may_hold_others(name) and stat_bits.S_ISREG(found.st_mode):
            container = self._is_container(self.root / target)
            if self.root is self.scan.root and (container or name.lower().endswith(WITH_ATTACHMENTS)):
                modified_ns = self.scan.modified_ns(found)
                self.scan.containers.append(Seen(self.stream, path, self.root / target, found, modified_ns))
            if container:
                if live:
                    self.scan.opened.add(DocumentKey(self.stream.name, path))
                return None
        # What was rejected is read again, since the rejection may have been the scan's own.
        if (
            ledger_row
            and ledger_row.status is not Status.REJECTED
            and row == _row(found, ledger_row.content_sha256)
            and found.st_size <= self.scan.settings.max_bytes
            and not self.verify
        ):
            self._compared(path, ledger_row, ledger_row.content_sha256, ledger_row.document_id, found)
            return row
        return self._read(path, target, ledger_row, found)

    def _is_container(self, file: Path) -> bool:
        try:
            return is_container(file, self.stream.suffixes)
        except OSError:
            # Read as a document, it is said why it cannot be.
            return False

    def _takes(self, path: str) -> bool:
        """Whether the stream takes a file. What an archive or a mail holds is chosen by its suffix alone: the pattern
        chose the archive."""
        inside = self.root is not self.scan.root
        return path.lower().endswith(self.stream.suffixes) if inside else self.stream.takes(path)

    def _compared(
        self, path: str, ledger_row: LedgerEntry | None, sha256: str, identity: str, found: os.stat_result
    ) -> None:
        """File a readable document under unchanged or changed."""
        if (
            ledger_row
            and ledger_row.content_sha256 == sha256
            and ledger_row.fingerprint == self.scan.fingerprints.of(self.stream.name, sha256)
            and ledger_row.status is not Status.DEFERRED
        ):
            self.scan.unchanged[self.stream.name] += 1
        else:
            key = DocumentKey(self.stream.name, path)
            self.scan.changed.append(DocumentVersion(key, sha256, identity, found.st_size, found.st_mtime_ns))

    def _read(self, path: str, target: str, ledger_row: LedgerEntry | None, found: os.stat_result) -> Row | None:
        """Hash a file and file it under what it is; return its cache row if that can be trusted."""
        scan, key = self.scan, DocumentKey(self.stream.name, path)
        try:
            if not stat_bits.S_ISREG(found.st_mode):
                raise Unreadable("not a regular file")
            content = read_steadily(self.root / target, found, scan.settings.max_bytes)
            scan.hashed += 1
        except Unreadable as problem:
            self._reject(path, str(problem), _stand_in(path, found.st_size, found.st_mtime_ns), ledger_row)
            return None
        except Unsteady as problem:
            scan.postponed.append(Postponed(key, str(problem)))
            return None
        except FileNotFoundError:
            if ledger_row:
                self.known[path] = ""
            return None
        found = content.stat
        if scan.is_later(found):
            scan.later += 1
            return None
        binary = content.binary and not path.lower().endswith(CONVERTED)
        if binary or not found.st_size:
            self._reject(path, "empty" if not found.st_size else "binary", content.sha256, ledger_row, hashed=True)
        else:
            identity = self.stream.document_id(content.sha1)
            self._compared(path, ledger_row, content.sha256, identity, found)
        if found.st_mtime_ns > content.read_ns - _RACY_NS:
            return None
        return _row(found, content.sha256)

    def _special(self, path: str) -> tuple[str, os.stat_result] | None:
        """What a link, or a name that is not UTF-8, stands for: path and stat of a file; None if it is settled here."""
        absolute = self.root / path
        try:
            found = absolute.lstat()
        except FileNotFoundError:
            return None
        if self.scan.is_later(found):
            self.known.pop(_key_path(path), None)
            return path, found
        if not _is_utf8(path):
            self._reject(path, "the name is not UTF-8", _stand_in(found.st_size, found.st_mtime_ns))
            return None
        target = Path(os.path.realpath(absolute))
        if not target.is_relative_to(self.root):
            self._reject(path, _LEADS_OUT, self._link_stand_in(absolute))
            return None
        try:
            found = target.lstat()
        except (FileNotFoundError, NotADirectoryError):
            self._reject(path, "a link that leads nowhere", self._link_stand_in(absolute))
            return None
        if self._needs_more_labels(path, target):
            self._reject(path, _LEADS_TO_MORE, self._link_stand_in(absolute))
            return None
        if stat_bits.S_ISDIR(found.st_mode):
            self._links.append(path)
            return None
        return str(target.relative_to(self.root)), found

    def _folder_link(self, path: str) -> None:
        """A link whose name is not a document's: followed if it is a folder inside the root."""
        absolute = self.root / path
        if not _is_folder(absolute):
            return
        inside = absolute.resolve().is_relative_to(self.root)
        if inside and self._needs_more_labels(path, absolute.resolve()):
            self._reject(path, _LEADS_TO_MORE, self._link_stand_in(absolute))
        elif inside:
            self._links.append(path)
        elif not self.scan.is_later(absolute.lstat()):
            self._reject(path, _LEADS_OUT, self._link_stand_in(absolute))
        else:
            self.scan.later += 1
            self.known.pop(_key_path(path), None)

    def _needs_more_labels(self, path: str, target: Path) -> bool:
        """Whether something at or below the target of a link has access labels that the link's own place lacks."""
        here, there = self.scan.settings.labels_of(DocumentKey(self.stream.name, path)), target.relative_to(self.root)
        return any(
            not labels <= here and (there.is_relative_to(folder) or Path(folder).is_relative_to(there))
            for folder, labels in self.scan.settings.labelled.items()
        )

    def _link_stand_in(self, path: Path) -> str:
        try:
            found = path.lstat()
            return _stand_in(os.fspath(path.readlink()), found.st_mtime_ns)
        except OSError:
            return _stand_in("")

    def _reject(
        self, path: str, reason: str, content: str, ledger_row: LedgerEntry | None = None, *, hashed: bool = False
    ) -> None:
        """Report a rejection, unless the ledger has it already."""
        key = DocumentKey(self.stream.name, _key_path(path))
        self.scan.opened.discard(key)
        if self.known.pop(key.path, None) is not None:
            ledger_row = self.scan.ledger.get(key)
        if ledger_row and ledger_row.status is Status.REJECTED and ledger_row.content_sha256 == content:
            self.scan.unchanged[self.stream.name] += 1
        else:
            self.scan.rejected.append(Rejected(key, content, reason, hashed))


def _is_utf8(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)


def _key_path(path: str) -> str:
    """The path that stands in the ledger: one that is not UTF-8 is escaped there."""
    if _is_utf8(path):
        return path
    # No document has this ending, so the escaped path cannot meet a real one.
    return os.fsencode(path).decode("utf-8", "backslashreplace") + " [not UTF-8]"


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _row(found: os.stat_result, sha256: str) -> Row:
    return (found.st_size, found.st_mtime_ns, found.st_ino, sha256)


def _stand_in(*parts: object) -> str:
    return digest_of([ascii(part) for part in parts])


def _incomplete(path: str, error: OSError) -> DeferredError:
    return DeferredError(
        f"{path} cannot be listed ({error.strerror}), so it is unknown what was deleted: make it readable and run the "
        "night again"
    )
