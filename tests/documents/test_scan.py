"""What a night sees of the document root, on real files."""

import datetime as dt
import hashlib
import logging
import os
import socket
import time
from pathlib import Path

import pytest

from ec1.documents import scan as scan_module
from ec1.documents import steady
from ec1.documents.ledger import DocumentKey, Fingerprints, LedgerEntry, Status
from ec1.documents.listing import Listing
from ec1.documents.scan import scan_documents
from ec1.documents.settings import DocumentSettings
from ec1.errors import DeferredError, InputError, PermanentError
from ec1.streams import CONTRACT_STREAMS

NIGHT_END = dt.datetime(2026, 6, 2, tzinfo=dt.UTC)
FINGERPRINTS = dict.fromkeys(CONTRACT_STREAMS, "f1")
HOUR = 3600


class Tree:
    """A document root, its cache and a ledger that follows what a night would do."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "documents"
        self.cache = folder / "cache"
        self.root.mkdir(parents=True)
        self.ledger: dict[DocumentKey, LedgerEntry] = {}

    def write(self, path: str, data: bytes | str, hours_before: float = 1) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data.encode() if isinstance(data, str) else data)
        self.date(target, hours_before)
        return target

    def date(self, path: Path, hours_before: float, follow: bool = True) -> None:
        moment = NIGHT_END.timestamp() - hours_before * HOUR
        os.utime(path, (moment, moment), follow_symlinks=follow)

    def scan(
        self,
        *,
        as_of: dt.datetime = NIGHT_END,
        fingerprints: dict[str, str] | None = None,
        retract: bool = True,
        verify: bool = False,
        cache: Path | None = None,
        **settings: object,
    ) -> Listing:
        return scan_documents(
            self.root,
            self.ledger,
            Fingerprints(fingerprints or FINGERPRINTS),
            night="2026-06-01",
            as_of=as_of,
            retract_vanished=retract,
            settings=DocumentSettings(max_vanished_share=1, **settings)
            if "max_vanished_share" not in settings
            else DocumentSettings(**settings),
            cache=cache or self.cache,
            verify=verify,
        )

    def apply(self, listing: Listing, status: Status = Status.APPLIED, fingerprint: str = "f1") -> None:
        for version in listing.changed:
            self.ledger[version.key] = LedgerEntry(
                version.key, version.document_id, version.content_sha256, fingerprint, status, listing.night
            )
        for item in listing.rejected:
            self.ledger[item.key] = LedgerEntry(
                item.key, "", item.content_sha256, fingerprint, Status.REJECTED, listing.night, item.reason
            )
        for key in listing.vanished:
            old = self.ledger[key]
            self.ledger[key] = LedgerEntry(
                key, old.document_id, old.content_sha256, "f1", Status.DELETED, listing.night
            )


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.write("service-minutebook/assets/2026/standup.md", "# Standup\nMaria Alvarez spoke.")
    tree.write("service-agents/market.yaml", "title: Market\n")
    tree.write("service-agents/deep/er/notes.yml", "a: 1\n")
    tree.write("service-agents/memo.md", "memo")
    tree.write("service-people/source/x/one.json", '{"corpus": "Jane"}')
    return tree


def paths(items: object) -> list[str]:
    return [item.key.path for item in items]  # type: ignore[attr-defined]


def test_the_three_streams_are_found_with_their_ids(tree: Tree) -> None:
    tree.write("service-agents/ignored.txt", "not a document")
    tree.write("service-minutebook/outside.md", "not below assets")
    tree.write("service-agents/.git/readme.md", "hidden")
    tree.write("service-agents/.#memo.md", "an editor's leftover")
    listing = tree.scan()
    assert [(v.key.stream, v.key.path) for v in listing.changed] == [
        ("contact", "service-people/source/x/one.json"),
        ("meeting", "service-minutebook/assets/2026/standup.md"),
        ("research", "service-agents/deep/er/notes.yml"),
        ("research", "service-agents/market.yaml"),
        ("research", "service-agents/memo.md"),
    ]
    memo = listing.changed[-1]
    assert memo.document_id == "ag-" + hashlib.sha1(b"memo").hexdigest()[:12]
    assert memo.content_sha256 == hashlib.sha256(b"memo").hexdigest()
    assert memo.size == 4
    assert [v.document_id[:3] for v in listing.changed[:2]] == ["sp-", "mk-"]
    assert not listing.vanished and not listing.rejected and not listing.later


def test_an_applied_document_needs_no_work_and_no_reading(tree: Tree) -> None:
    tree.apply(tree.scan())
    again = tree.scan()
    assert (again.changed, again.hashed) == ((), 0)
    assert again.unchanged == {"meeting": 1, "research": 3, "contact": 1}


def test_touch_means_no_work_and_an_edit_does(tree: Tree) -> None:
    tree.apply(tree.scan())
    tree.date(tree.root / "service-agents/market.yaml", 0.5)
    tree.write("service-agents/memo.md", "omem", hours_before=0.5)
    again = tree.scan()
    assert paths(again.changed) == ["service-agents/memo.md"]
    assert again.hashed == 2
    assert tree.scan().hashed == 1, "the touched file's new time stamp is remembered"


def test_a_rename_is_a_new_key_with_the_same_content(tree: Tree) -> None:
    tree.apply(tree.scan())
    memo = tree.root / "service-agents/memo.md"
    memo.rename(memo.with_name("renamed.md"))
    again = tree.scan()
    assert paths(again.changed) == ["service-agents/renamed.md"]
    assert again.changed[0].content_sha256 == hashlib.sha256(b"memo").hexdigest()
    assert again.vanished == (DocumentKey("research", "service-agents/memo.md"),)


@pytest.mark.parametrize(
    ("status", "works"),
    [(Status.APPLIED, 0), (Status.QUARANTINED, 0), (Status.REJECTED, 0), (Status.DEFERRED, 5), (Status.DELETED, 5)],
)
def test_the_ledgers_status_decides(tree: Tree, status: Status, works: int) -> None:
    tree.apply(tree.scan(), status)
    for cache in (tree.cache, tree.cache / "another"):
        assert len(tree.scan(cache=cache).changed) == works


def test_a_new_fingerprint_is_work_for_its_stream_only_and_is_not_read_again(tree: Tree) -> None:
    first = tree.scan()
    tree.apply(first)
    again = tree.scan(fingerprints={**FINGERPRINTS, "research": "f2"})
    assert again.changed == tuple(v for v in first.changed if v.key.stream == "research")
    assert again.hashed == 0


def test_a_new_fingerprint_retries_what_the_parser_rejected(tree: Tree) -> None:
    tree.apply(tree.scan(), Status.REJECTED)
    changed = dict.fromkeys(CONTRACT_STREAMS, "f2")
    digests = {tree.scan(fingerprints=changed, cache=tree.cache / name).digest for name in ".x"}
    assert len(digests) == 1
    assert len(tree.scan(fingerprints=changed).changed) == 5


def test_a_file_newer_than_the_night_waits_for_its_own(tree: Tree) -> None:
    tree.apply(tree.scan())
    tree.write("service-agents/tomorrow.md", "new", hours_before=-1)
    tree.write("service-agents/memo.md", "edited tomorrow", hours_before=-1)
    tree.write("service-agents/midnight.md", "at the very end", hours_before=0)
    listing = tree.scan()
    assert paths(listing.changed) == ["service-agents/midnight.md"]
    assert (listing.later, listing.vanished) == (2, ())
    tomorrow = tree.scan(as_of=NIGHT_END + dt.timedelta(days=1))
    assert paths(tomorrow.changed) == [f"service-agents/{name}.md" for name in ("memo", "midnight", "tomorrow")]


def test_a_date_in_the_future_is_none_and_the_file_counts_when_it_came(tree: Tree) -> None:
    """A share's clock, or an archive that was made in another time zone: the files waited for years, untold."""
    path = tree.write("service-agents/ahead.md", "dated ahead")
    ahead = dt.datetime.now(dt.UTC) + dt.timedelta(days=900)
    os.utime(path, (ahead.timestamp(), ahead.timestamp()))
    assert tree.scan().later == 1, "it came after that night"
    now = dt.datetime.now(dt.UTC)
    listing = tree.scan(as_of=now)
    assert "service-agents/ahead.md" in paths(listing.changed) and listing.later == 0
    tree.apply(listing)
    assert not tree.scan(as_of=now).changed and not tree.scan(as_of=now).vanished


def test_links_and_bad_names_also_wait_for_their_own_night(tree: Tree, tmp_path: Path) -> None:
    """Else a night made up later would reject what the same night, run on time, could not see."""
    (tmp_path / "outside").mkdir()
    agents = tree.root / "service-agents"
    bad = Path(os.fsdecode(os.fsencode(agents) + b"/caf\xe9.md"))
    bad.write_text("text", encoding="utf-8")
    (agents / "out.md").symlink_to(tmp_path / "outside")
    (agents / "out").symlink_to(tmp_path / "outside")
    (agents / "alias.md").symlink_to("memo.md")
    late = [bad, agents / "out.md", agents / "out", agents / "alias.md"]
    for path in late:
        tree.date(path, -1, follow=False)
    listing = tree.scan()
    assert (listing.later, listing.rejected, len(listing.changed)) == (4, (), 5)
    tomorrow = tree.scan(as_of=NIGHT_END + dt.timedelta(days=1))
    assert (tomorrow.later, len(tomorrow.rejected), len(tomorrow.changed)) == (0, 3, 6)
    tree.apply(tomorrow)
    assert tree.scan().vanished == ()


def test_vanished_documents_are_reported_once(tree: Tree) -> None:
    tree.apply(tree.scan())
    (tree.root / "service-agents/memo.md").unlink()
    assert tree.scan(retract=False).vanished == ()
    listing = tree.scan()
    assert listing.vanished == (DocumentKey("research", "service-agents/memo.md"),)
    tree.apply(listing)
    assert tree.scan().vanished == ()


def test_a_folder_in_a_documents_place_is_a_deletion(tree: Tree) -> None:
    tree.apply(tree.scan())
    memo = tree.root / "service-agents/memo.md"
    memo.unlink()
    tree.write("service-agents/memo.md/inner.md", "inside")
    listing = tree.scan()
    assert paths(listing.changed) == ["service-agents/memo.md/inner.md"]
    assert listing.vanished == (DocumentKey("research", "service-agents/memo.md"),)


def test_too_many_deletions_look_like_a_lost_mount(tree: Tree) -> None:
    tree.apply(tree.scan())
    for name in ("market.yaml", "memo.md"):
        (tree.root / "service-agents" / name).unlink()
    with pytest.raises(PermanentError, match=r"2 of 5 known documents .*40%.*lost mount.*max_vanished_share"):
        tree.scan(max_vanished_share=0.3)
    assert len(tree.scan(max_vanished_share=0.4).vanished) == 2


def test_an_emptied_stream_looks_like_a_lost_mount_however_small_its_share(tree: Tree) -> None:
    for number in range(10):
        tree.write(f"service-people/source/{number}.json", "{}")
    for number in range(200):
        tree.write(f"service-agents/{number}.md", "text")
    tree.apply(tree.scan())
    for path in (tree.root / "service-people/source").rglob("*.json"):
        path.unlink()
    with pytest.raises(PermanentError, match=r"all 11 documents of .*service-people/source"):
        tree.scan(max_vanished_share=0.3)
    assert len(tree.scan(max_vanished_share=1).vanished) == 11


def test_missing_folders(tree: Tree) -> None:
    hidden = tree.root / "service-people"
    tree.apply(tree.scan())
    hidden.rename(tree.root / "elsewhere")
    with pytest.raises(PermanentError, match=r"service-people/source is missing.*1 documents"):
        tree.scan()
    tree.ledger = {key: entry for key, entry in tree.ledger.items() if key.stream != "contact"}
    assert tree.scan().unchanged["contact"] == 0
    tree.root.rename(tree.root.with_name("gone"))
    with pytest.raises(PermanentError, match=r"is missing.*lost mount"):
        tree.scan()
    tree.ledger = {}
    with pytest.raises(InputError, match=r"document root .*documents does not exist"):
        tree.scan()


def test_a_folder_that_cannot_be_listed_stops_the_scan(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.apply(tree.scan())
    real = os.open

    def refuse(path: object, *args: object, **kwargs: object) -> int:
        if str(path).endswith("deep/er"):
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DeferredError, match=r"deep/er cannot be listed \(Permission denied\)"):
        tree.scan()


def test_files_that_are_no_documents_get_one_row_with_a_reason(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret.md").write_text("outside")
    (tmp_path / "outside").mkdir()
    agents = tree.root / "service-agents"
    tree.write("service-agents/empty.md", "")
    tree.write("service-agents/binary.md", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    tree.write("service-agents/large.md", "x" * 2000)
    (agents / "out.md").symlink_to(tmp_path / "secret.md")
    (agents / "out-folder").symlink_to(tmp_path / "outside")
    (agents / "nowhere.md").symlink_to("missing.md")
    (agents / "self.md").symlink_to("self.md")
    os.mkfifo(agents / "pipe.md")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(agents)
        server.bind("socket.md")
    for path in agents.glob("*.md"):
        tree.date(path, 1, follow=False)
    tree.date(agents / "out-folder", 1, follow=False)
    listing = tree.scan(max_bytes=1000)
    assert {Path(item.key.path).name: item.reason for item in listing.rejected} == {
        "empty.md": "empty",
        "binary.md": "binary",
        "large.md": "2,000 bytes are more than documents.max_bytes (1,000)",
        "out.md": "a link that leads out of the document root",
        "out-folder": "a link that leads out of the document root",
        "nowhere.md": "a link that leads nowhere",
        "self.md": "not a regular file",
        "pipe.md": "not a regular file",
        "socket.md": "not a regular file",
    }
    assert len(listing.changed) == 5
    tree.apply(listing)
    again = tree.scan(max_bytes=1000)
    assert (again.rejected, again.changed, again.vanished) == ((), (), ())
    assert again.unchanged["research"] == 3 + 9
    large = tree.scan(max_bytes=3000)
    assert paths(large.changed) == ["service-agents/large.md"], "a higher bound lets it in"
    tree.write("service-agents/large.md", "y" * 2001)
    assert paths(tree.scan(max_bytes=1000).rejected) == ["service-agents/large.md"], "a changed file is told again"


def test_a_lower_size_bound_takes_an_applied_document_out(tree: Tree) -> None:
    tree.write("service-agents/large.md", "x" * 2000)
    tree.apply(tree.scan())
    assert paths(tree.scan(max_bytes=1000).rejected) == ["service-agents/large.md"]


def test_links_inside_the_root_are_followed_once_and_loops_end(tree: Tree) -> None:
    agents = tree.root / "service-agents"
    tree.write("archive/old.md", "old text")
    (agents / "alias.md").symlink_to("memo.md")
    (agents / "deep/up").symlink_to("..")
    (agents / "deep/er/self").symlink_to(".")
    (agents / "archive").symlink_to("../archive")
    (agents / "archive-again").symlink_to("../archive")
    (agents / "folder.md").symlink_to("deep")
    for name in "abcdefgh":
        (agents / "deep" / name).mkdir()
    tree.date(agents / "alias.md", 1, follow=False)
    tree.date(agents / "folder.md", 1, follow=False)
    for name in "abcdefgh":
        for other in "abcdefgh":
            (agents / "deep" / name / f"to-{other}").symlink_to(f"../{other}")
    listing = tree.scan()
    assert paths(v for v in listing.changed if v.key.stream == "research") == [
        "service-agents/alias.md",
        "service-agents/archive/old.md",
        "service-agents/deep/er/notes.yml",
        "service-agents/market.yaml",
        "service-agents/memo.md",
    ]
    tree.apply(listing)
    again = tree.scan()
    assert (again.changed, again.vanished, again.hashed) == ((), (), 0)


def test_a_stream_folder_that_leads_out_is_rejected(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write("../elsewhere/a.md", "text")
    (tree.root / "service-agents").symlink_to(tmp_path / "elsewhere")
    listing = tree.scan()
    assert [(item.key.path, item.reason) for item in listing.rejected] == [
        ("service-agents", "a link that leads out of the document root")
    ]
    tree.apply(listing)
    again = tree.scan()
    assert (again.rejected, again.vanished) == ((), ())


def test_a_root_that_is_a_link_is_fine(tree: Tree, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tree.root)
    first = tree.scan()
    tree.root = link
    assert tree.scan() == Listing(**{**vars(first), "hashed": 0} | {"hashed": 5})


def test_names_that_are_not_utf8_are_rejected_and_harmless(tree: Tree, tmp_path: Path) -> None:
    raw = os.fsencode(tree.root / "service-agents")
    for name in (b"caf\xe9.md", b"d\xff/plain.md"):
        target = Path(os.fsdecode(raw + b"/" + name))
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(b"text")
        os.utime(target, (1, 1))
    listing = tree.scan()
    assert paths(listing.rejected) == [
        "service-agents/caf\\xe9.md [not UTF-8]",
        "service-agents/d\\xff/plain.md [not UTF-8]",
    ]
    listing.save(tmp_path / "listing.json")
    assert Listing.load(tmp_path / "listing.json") == listing
    tree.apply(listing)
    assert tree.scan().rejected == ()


def test_a_file_that_changes_while_it_is_read(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    restless, calmed = tree.root / "service-agents/memo.md", tree.root / "service-agents/market.yaml"
    real, reads = steady._hash_file, []

    def edited_meanwhile(path: Path, max_bytes: int) -> object:
        content = real(path, max_bytes)
        reads.append(path)
        if path == restless or (path == calmed and reads.count(calmed) == 1):
            path.write_text(f"edit {len(reads)}", encoding="utf-8")
            tree.date(path, 1 / (1 + len(reads)))
        return content

    monkeypatch.setattr(steady, "_hash_file", edited_meanwhile)
    listing = tree.scan()
    assert [(p.key.path, p.reason) for p in listing.postponed] == [
        ("service-agents/memo.md", "changed while it was read, 3 times")
    ]
    market = next(v for v in listing.changed if v.key.path.endswith("market.yaml"))
    assert market.content_sha256 == hashlib.sha256(calmed.read_bytes()).hexdigest()
    assert "service-agents/memo.md" not in paths(listing.changed)


@pytest.mark.parametrize(
    ("error", "rejected"), [(PermissionError(13, "Permission denied"), True), (OSError(5, "Input/output error"), False)]
)
def test_unreadable_files(tree: Tree, monkeypatch: pytest.MonkeyPatch, error: OSError, rejected: bool) -> None:
    real = steady._hash_file

    def fail(path: Path, max_bytes: int) -> object:
        if path.name == "memo.md":
            raise error
        return real(path, max_bytes)

    monkeypatch.setattr(steady, "_hash_file", fail)
    listing = tree.scan()
    assert len(listing.changed) == 4
    assert (len(listing.rejected), len(listing.postponed)) == ((1, 0) if rejected else (0, 1))
    (told,) = listing.rejected + listing.postponed
    assert str(error.strerror) in told.reason
    tree.apply(listing)
    assert tree.scan().rejected == ()


def test_a_file_deleted_during_the_scan_has_vanished(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.apply(tree.scan())
    real = steady._hash_file

    def delete_first(path: Path, max_bytes: int) -> object:
        path.unlink()
        return real(path, max_bytes)

    tree.write("service-agents/memo.md", "about to go")
    monkeypatch.setattr(steady, "_hash_file", delete_first)
    listing = tree.scan()
    assert listing.vanished == (DocumentKey("research", "service-agents/memo.md"),)
    assert not listing.changed and not listing.postponed


def test_a_document_that_is_being_replaced_has_not_vanished(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.apply(tree.scan())
    memo = tree.root / "service-agents/memo.md"
    memo.unlink()
    real = scan_module._Scan.vanished

    def replaced_meanwhile(scan: object) -> list[DocumentKey]:
        memo.write_text("saved again by an editor")
        return real(scan)  # type: ignore[arg-type]

    monkeypatch.setattr(scan_module._Scan, "vanished", replaced_meanwhile)
    assert tree.scan().vanished == ()


def test_a_fresh_time_stamp_is_not_trusted(tree: Tree) -> None:
    """Two edits within one tick of the file system's clock have the same size and mtime ("racy git")."""
    now = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)
    memo = tree.root / "service-agents/memo.md"
    memo.write_text("aaaa")
    stamp = time.time_ns()
    os.utime(memo, ns=(stamp, stamp))
    tree.apply(tree.scan(as_of=now))
    with memo.open("r+") as stream:
        stream.write("bbbb")
    os.utime(memo, ns=(stamp, stamp))
    assert paths(tree.scan(as_of=now).changed) == ["service-agents/memo.md"]


def test_verification_finds_what_the_time_stamp_hides(tree: Tree) -> None:
    tree.apply(tree.scan())
    memo = tree.root / "service-agents/memo.md"
    before = memo.stat()
    with memo.open("r+") as stream:
        stream.write("omem")
    os.utime(memo, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert tree.scan().hashed == 0
    assert paths(tree.scan(verify=True).changed) == ["service-agents/memo.md"]


def test_verification_comes_by_itself(tree: Tree) -> None:
    tree.apply(tree.scan(verify_every_days=7))

    def read_after(days: int, every: int = 7) -> int:
        return tree.scan(as_of=NIGHT_END + dt.timedelta(days=days), verify_every_days=every).hashed

    assert [read_after(6), read_after(70, every=0), read_after(7), read_after(8), read_after(1), read_after(14)] == [
        0, 0, 5, 0, 0, 5,
    ]  # fmt: skip


def test_nothing_is_written_when_nothing_changed(tree: Tree) -> None:
    tree.apply(tree.scan())
    tree.scan()
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tree.cache.iterdir()}
    assert before
    assert tree.scan().hashed == 0
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tree.cache.iterdir()} == before


@pytest.mark.parametrize("damage", ["garbage", "cut", "page", "rows", "empty", "other version"])
def test_a_damaged_cache_is_built_anew(tree: Tree, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(300):
        tree.write(f"service-agents/{number % 7}/{number}.md", f"text {number}")
    first = tree.scan()
    tree.apply(first)
    (file,) = tree.cache.iterdir()
    data = file.read_bytes()
    if damage == "rows":
        import sqlite3

        with sqlite3.connect(file) as connection:
            connection.execute("""UPDATE directories SET sizes = x'ff00fe'""")
        connection.close()
    elif damage == "other version":
        import sqlite3

        with sqlite3.connect(file) as connection:
            connection.execute("PRAGMA user_version = 99")
        connection.close()
    else:
        file.write_bytes(
            {
                "garbage": b"not a database" * 100,
                "cut": data[: len(data) // 2],
                "page": data[:4096] + os.urandom(4096) + data[8192:],
                "empty": b"",
            }[damage]
        )
    with caplog.at_level(logging.ERROR):
        again = tree.scan()
    assert (again.changed, again.vanished) == ((), ())
    assert sum(again.unchanged.values()) == len(first.changed)
    tree.scan()
    assert tree.scan().hashed == 0, "the cache works again"


def test_a_cache_that_lies_cannot_change_the_listing(tree: Tree) -> None:
    """A wrong hash in it would otherwise name a version that no read could ever find."""
    import sqlite3

    first = tree.scan()
    (file,) = tree.cache.iterdir()
    with sqlite3.connect(file) as connection:
        rows = connection.execute("SELECT path, hashes FROM directories").fetchall()
        for path, files in rows:
            for version in first.changed:
                files = files.replace(version.content_sha256, "0" * 64)
            connection.execute("UPDATE directories SET hashes = ? WHERE path = ?", (files, path))
    connection.close()
    assert tree.scan().changed == first.changed
    tree.apply(first)
    assert tree.scan().changed == ()


def test_a_locked_cache_does_not_stop_the_scan(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlite3

    tree.apply(tree.scan())
    (file,) = tree.cache.iterdir()
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: connect(*args, **{**kwargs, "timeout": 0}))
    other = connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        tree.write("service-agents/memo.md", "new text")
        assert paths(tree.scan().changed) == ["service-agents/memo.md"]
    finally:
        other.execute("ROLLBACK")
        other.close()


def test_the_digest_names_the_work_and_nothing_else(tree: Tree, tmp_path: Path) -> None:
    copy = Tree(tmp_path / "another" / "machine")
    for path in sorted(tree.root.rglob("*"), reverse=True):
        if path.is_file():
            copy.write(str(path.relative_to(tree.root)), path.read_bytes(), hours_before=7)
    for each, size in ((tree, 10), (copy, 11)):
        each.write("service-agents/empty.md", "", hours_before=size)
    ours, theirs = tree.scan(), copy.scan(as_of=NIGHT_END - dt.timedelta(minutes=5))
    assert ours.digest == theirs.digest
    copy.write("service-agents/memo.md", "other")
    assert copy.scan().digest != ours.digest


def test_a_listing_survives_its_file(tree: Tree, tmp_path: Path) -> None:
    tree.apply(tree.scan())
    tree.write("service-agents/memo.md", "new")
    tree.write("service-agents/empty.md", "")
    (tree.root / "service-agents/market.yaml").unlink()
    listing = tree.scan()
    file = tmp_path / "night" / "documents.json"
    listing.save(file)
    loaded = Listing.load(file)
    assert loaded == listing
    assert loaded.digest == listing.digest
    file.write_text(file.read_text()[:-20])
    with pytest.raises(InputError, match=r"documents\.json is not a document listing"):
        Listing.load(file)
    with pytest.raises(InputError, match="does not exist"):
        Listing.load(tmp_path / "missing.json")


def test_a_time_without_a_zone_is_refused(tree: Tree) -> None:
    with pytest.raises(InputError, match="time zone"):
        tree.scan(as_of=dt.datetime(2026, 6, 2))


def test_a_path_too_long_for_the_system_is_rejected(tree: Tree) -> None:
    here = os.open(tree.root / "service-agents", os.O_RDONLY)
    name = "n" * 250
    for _ in range(18):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    listing = tree.scan()
    assert [item.reason for item in listing.rejected] == ["the path is too long for this system"]
    assert len(listing.changed) == 5
    # pytest removes by whole paths, which is just what cannot be done here.
    os.system(f"rm -r '{tree.root}/service-agents/{name}'")
