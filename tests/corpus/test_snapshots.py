"""Snapshots: which lines count, that the same content has the same name, and that only new bytes are read."""

import datetime as dt
import errno
import json
import multiprocessing
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus_builder import LONG_AGO, NIGHT, apprenticeship, edit, feedback, write_lines

from ec1.corpus import pieces, snapshots
from ec1.corpus.buckets import Bucket, bucket, watermark
from ec1.corpus.index import LineIndex
from ec1.corpus.snapshots import Snapshot, load_snapshot, mended_snapshot, take_snapshot
from ec1.errors import DamagedError, InputError, PermanentError
from ec1.home import Home
from ec1.seals import read_sealed, write_sealed

LATER = NIGHT + dt.timedelta(hours=5)


@pytest.fixture
def engineering(tmp_path: Path) -> Bucket:
    return bucket(tmp_path / "corpus", "engineering", "acme")


def take(of: Bucket, home: Home, as_of: dt.datetime = NIGHT) -> Snapshot:
    return take_snapshot(of, of.objective, as_of=as_of, home=home)


def fresh(of: Bucket, tmp_path: Path, as_of: dt.datetime = NIGHT) -> Snapshot:
    """The same snapshot taken with nothing remembered."""
    home = Home(tmp_path / f"fresh-{random.random()}")
    return take(of, home, as_of)


def commits(snapshot: Snapshot) -> set[int]:
    return {int(row.record["source_commit"], 16) for row in snapshot.rows()}


def test_a_snapshot_holds_each_line_once_with_its_origin(engineering: Bucket, home: Home) -> None:
    write_lines(engineering.root / "engineering/demo/a.jsonl", [edit(1), edit(2), b"", edit(1)])
    write_lines(engineering.root / "engineering/demo/deep/b.jsonl", [edit(2), edit(3), b"{broken", edit(4, diff="")])
    snapshot = take(engineering, home)
    assert (snapshot.lines, snapshot.trainable, snapshot.files) == (5, 3, 2)
    assert snapshot.rejected == {"not valid JSON": 1, "neither a diff nor a description of it": 1}
    rows = list(snapshot.rows())
    assert [row.digest for row in rows] == sorted(row.digest for row in rows)
    assert {row.origin for row in rows} == {
        "engineering/demo/a.jsonl:1",
        "engineering/demo/a.jsonl:2",
        "engineering/demo/deep/b.jsonl:2",
    }
    assert load_snapshot(home, "engineering-acme", snapshot.digest) == snapshot


def test_a_reject_is_recorded_without_its_content(engineering: Bucket, home: Home) -> None:
    write_lines(engineering.root / "engineering/a.jsonl", [edit(1), b'{"password": "hunter2hunter2"'])
    snapshot = take(engineering, home)
    rejects = [json.loads(line) for line in next(snapshot.path.glob("rejects-*.jsonl")).read_text().splitlines()]
    assert [(reject["origin"], reject["reason"]) for reject in rejects] == [
        ({"file": "engineering/a.jsonl", "line": 2}, "not valid JSON")
    ]
    assert not any(b"hunter2" in path.read_bytes() for path in snapshot.path.iterdir())


def test_the_digest_depends_on_the_tuples_and_not_on_their_place(tmp_path: Path, home: Home) -> None:
    records = [edit(number) for number in range(30)]
    one, other = (bucket(tmp_path / name, "engineering", "acme") for name in ("one", "other"))
    write_lines(one.root / "engineering/all.jsonl", [*records, b"{broken"])
    random.Random(1).shuffle(records)
    for number, record in enumerate(records):
        reordered = dict(reversed(record.items()))
        write_lines(other.root / f"engineering/c{number % 3}/{number}.jsonl", [reordered])
    write_lines(other.root / "engineering/rest.jsonl", [records[3], b"{broken"])
    assert take(one, home).digest == take(other, Home(tmp_path / "elsewhere")).digest
    write_lines(other.root / "engineering/more.jsonl", [edit(99)])
    assert take(one, home).digest != take(other, Home(tmp_path / "elsewhere")).digest


def test_the_objective_is_part_of_the_digest(tmp_path: Path, home: Home) -> None:
    of = bucket(tmp_path / "corpus", "apprenticeship", "acme")
    write_lines(of.root / "apprenticeship/git-commit/a.jsonl", [apprenticeship(1), apprenticeship(2, actual_diff="x")])
    write_lines(of.root / "feedback/f.jsonl", [feedback(3)])
    dpo, sft = take(of, home), take_snapshot(of, "sft", as_of=NIGHT, home=home)
    assert (dpo.trainable, sft.trainable) == (2, 3)
    assert dpo.digest != sft.digest


def test_a_bucket_holds_its_own_folders_only(tmp_path: Path, home: Home) -> None:
    root = tmp_path / "corpus"
    outside = write_lines(tmp_path / "outside.jsonl", [edit(7)])
    for place, number in (("engineering/x.jsonl", 1), ("mayor/x.jsonl", 2), ("apprenticeship/t/x.jsonl", 3)):
        write_lines(root / place, [edit(number)])
    write_lines(root / "engineering/.half-written.jsonl", [edit(4)])
    write_lines(root / "engineering/notes.txt", [edit(5)])
    write_lines(root / "engineering/other-tenant.jsonl", [edit(6, tenant="rival")])
    (root / "engineering/link.jsonl").symlink_to(outside)
    snapshot = take(bucket(root, "engineering", "acme"), home)
    assert commits(snapshot) == {1}
    assert snapshot.rejected == {"belongs to another tenant": 1}
    assert commits(take(bucket(root, "mayor", "acme"), home)) == {2}
    for role, tenant in (("../engineering", "acme"), ("engineering", "a/b"), ("engineering", "")):
        with pytest.raises(InputError):
            bucket(root, role, tenant)


def test_of_a_file_that_changed_later_only_dated_lines_count(tmp_path: Path, home: Home) -> None:
    of = bucket(tmp_path / "corpus", "apprenticeship", "acme")
    early, late = "2026-06-01T23:59:59Z", "2026-06-02T00:00:01+00:00"
    same_moment = "2026-06-02T02:00:00+02:00"
    lines = [
        feedback(1, created=early),
        feedback(2, created=late),
        feedback(3, created=None),
        feedback(4, created=same_moment),
        feedback(5, created=None, triggered_at=early),
        b"{broken",
    ]
    path = write_lines(of.root / "feedback/f.jsonl", lines, at=LATER)
    assert {row.record["brief_id"] for row in take(of, home).rows()} == {"B1", "B4", "B5"}
    whole = take(of, home, as_of=LATER)
    assert (whole.trainable, whole.lines) == (5, 6)
    os.utime(path, (NIGHT.timestamp(), NIGHT.timestamp()))
    assert take(of, home).digest == whole.digest


def test_a_date_in_the_future_is_none_and_the_file_counts_when_it_came(engineering: Bucket, home: Home) -> None:
    """A share's clock, or an archive of another time zone: the rows waited for years, untold."""
    now = dt.datetime.now(dt.UTC)
    write_lines(engineering.root / "engineering/a.jsonl", [edit(1)], at=now + dt.timedelta(days=900))
    assert commits(take(engineering, home, now - dt.timedelta(days=1))) == set()
    for _ in range(2):
        assert commits(take(engineering, home, dt.datetime.now(dt.UTC))) == {1}


def test_nights_made_up_later_equal_those_taken_on_time(tmp_path: Path) -> None:
    of = bucket(tmp_path / "corpus", "apprenticeship", "acme")
    on_time, days = Home(tmp_path / "on-time"), [NIGHT + dt.timedelta(days=day) for day in range(4)]
    digests = []
    for number, day in enumerate(days):
        moment = day - dt.timedelta(hours=3)
        made = moment.isoformat()
        write_lines(of.root / "feedback/all.jsonl", [feedback(number, created=made)], at=moment, append=True)
        one = apprenticeship(number, created=made)
        write_lines(of.root / f"apprenticeship/t/{number}.jsonl", [one, feedback(99, created=None)], at=moment)
        digests.append(take(of, on_time, as_of=day).digest)
    assert len(set(digests)) == 4
    made_up = Home(tmp_path / "made-up")
    assert [take(of, made_up, as_of=day).digest for day in days] == digests
    assert [take(of, on_time, as_of=day).digest for day in reversed(days)] == digests[::-1]


def test_growth_reads_only_new_bytes(engineering: Bucket, home: Home, tmp_path: Path) -> None:
    for number in range(20):
        write_lines(engineering.root / f"engineering/{number}.jsonl", [edit(number * 10 + line) for line in range(5)])
    first = take(engineering, home)
    write_lines(engineering.root / "engineering/3.jsonl", [edit(900), edit(901)], append=True)
    write_lines(engineering.root / "engineering/new.jsonl", [edit(902), edit(30)])
    with LineIndex(engineering, home.cache) as index:
        assert index.refresh() == 4
        assert index.refresh() == 0
    second = take(engineering, home)
    assert (second.trainable, second.newer_than(first), first.newer_than(second)) == (103, 3, 0)
    assert second.digest == fresh(engineering, tmp_path).digest
    (shared,) = first.path.glob("tuples-*.jsonl")
    assert (second.path / shared.name).stat().st_ino == shared.stat().st_ino
    assert take(engineering, home) == second


def random_change(root: Path, random_: random.Random, counter: int) -> None:
    """One thing that happens to a corpus: a file appears, grows, is rewritten, shrinks, vanishes or moves."""
    files = sorted((root / "feedback").glob("*.jsonl"))
    at = NIGHT + dt.timedelta(hours=random_.choice([-9, -1, 3]))
    created = random_.choice([None, "2026-06-01T08:00:00Z", "2026-06-02T01:00:00Z", "2026-06-02T04:00:00Z"])
    records = [feedback(random_.randrange(60), created=created) for _ in range(random_.randrange(1, 4))]
    what = random_.choice(["new", "new", "append", "append", "append", "rewrite", "cut", "delete", "rename", "partial"])
    if what == "new" or not files:
        write_lines(root / f"feedback/{counter}.jsonl", records, at=at)
        return
    path = random_.choice(files)
    if what == "append":
        write_lines(path, records, at=at, append=True)
    elif what == "rewrite":
        write_lines(path, records, at=at)
    elif what == "cut":
        os.truncate(path, path.stat().st_size // 2)
    elif what == "delete":
        path.unlink()
    elif what == "rename":
        path.rename(path.with_name(f"r{counter}.jsonl"))
    else:
        with path.open("ab") as stream:
            stream.write(json.dumps(records[0]).encode()[: random_.randrange(1, 200)])


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_the_incremental_snapshot_equals_a_fresh_one(tmp_path: Path, home: Home, seed: int) -> None:
    of, random_ = bucket(tmp_path / "corpus", "apprenticeship", "acme"), random.Random(seed)
    for step in range(25):
        random_change(of.root, random_, step)
        as_of = NIGHT + dt.timedelta(hours=random_.choice([-5, 0, 0, 0, 2, 6]))
        taken, anew = take(of, home, as_of), fresh(of, tmp_path, as_of)
        assert (taken.digest, taken.trainable, taken.rejected) == (anew.digest, anew.trainable, anew.rejected), step
        rows = list(taken.rows())
        assert [row.digest for row in rows] == [row.digest for row in anew.rows()]
        assert len(rows) == taken.trainable == len(taken.trainable_keys())


def inodes(snapshot: Snapshot) -> dict[int, int]:
    """The files of a snapshot but its manifest: inode -> bytes."""
    stats = [path.stat() for path in snapshot.path.iterdir() if path.name != "manifest.json"]
    return {stat.st_ino: stat.st_size for stat in stats}


def test_a_deleted_file_costs_what_it_changes(
    engineering: Bucket, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 5000)
    for number in range(30):
        lines = [*(edit(number * 10 + line) for line in range(9)), b"{broken %d" % number]
        write_lines(engineering.root / f"engineering/{number:02}.jsonl", lines)
    first = take(engineering, home)
    (engineering.root / "engineering/17.jsonl").unlink()
    second = take(engineering, home)
    assert (second.trainable, second.rejected) == (29 * 9, {"not valid JSON": 29})
    assert second.digest == fresh(engineering, tmp_path).digest
    assert list(second.rows()) == [row for row in first.rows() if not row.origin.startswith("engineering/17")]
    added = {inode: size for inode, size in inodes(second).items() if inode not in inodes(first)}
    assert sum(added.values()) < sum(inodes(first).values()) / 5
    assert not [path for path in second.path.iterdir() if b"handler_170(" in path.read_bytes()], "what went is gone"
    # Whichever of the two is removed, the other one keeps what both had.
    shutil.rmtree(first.path)
    load_snapshot(home, second.bucket, second.digest).check()
    assert len(list(second.rows())) == second.trainable


def test_a_snapshot_of_an_earlier_release_is_read(engineering: Bucket, home: Home) -> None:
    path = write_lines(engineering.root / "engineering/a.jsonl", [edit(number) for number in range(9)])
    now = take(engineering, home)
    rows, lines, trainable = list(now.rows()), now.line_keys(), now.trainable_keys()
    records = [json.loads(line) for file in now.path.glob("tuples-*.jsonl") for line in file.read_bytes().splitlines()]
    for file in now.path.glob("tuples-*"):
        file.unlink()
    # Two parts, each in the order of the digests.
    for number, part in enumerate((records[:5], records[5:])):
        ordered = sorted(json.dumps(record, sort_keys=True, separators=(",", ":")) for record in part)
        name = f"tuples.{number}.jsonl" if number else "tuples.jsonl"
        (now.path / name).write_text("".join(f"{line}\n" for line in ordered))
    np.save(now.path / "lines.npy", lines)
    np.save(now.path / "trainable.npy", trainable)
    manifest = {key: value for key, value in read_sealed(now.path, "").items() if key != "files"}
    write_sealed(now.path, manifest | {"parts": [{"tuples": 5, "rejects": 0}, {"tuples": 4, "rejects": 0}]})
    earlier = load_snapshot(home, now.bucket, now.digest)
    earlier.check()
    earlier.check_name()
    assert list(earlier.rows()) == rows and earlier.newer_than(None) == 9
    assert take(engineering, home) == earlier, "it is still the one of this content"
    write_lines(path, [edit(number) for number in range(8)])
    assert earlier.newer_than(take(engineering, home)) == 1


def test_many_small_nights_leave_few_files(engineering: Bucket, home: Home, tmp_path: Path) -> None:
    for number in range(40):
        write_lines(engineering.root / f"engineering/{number}.jsonl", [edit(number)])
        snapshot = take(engineering, home)
    assert len(list(snapshot.path.glob("tuples*.jsonl"))) <= 7
    assert commits(snapshot) == set(range(40))
    assert snapshot.digest == fresh(engineering, tmp_path).digest


def test_a_disk_that_fails_is_told_with_the_file(
    engineering: Bucket, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    write_lines(engineering.root / "engineering/a.jsonl", [edit(1)])
    monkeypatch.setattr("ec1.corpus.index._probe", lost)
    with pytest.raises(OSError, match=rf"Input/output error: '{engineering.root}/.*jsonl"):
        take(engineering, home)
    monkeypatch.undo()
    assert commits(take(engineering, home))


def test_a_rewrite_in_place_of_the_same_size_is_seen(engineering: Bucket, home: Home, tmp_path: Path) -> None:
    path = write_lines(engineering.root / "engineering/a.jsonl", [edit(1), edit(2)])
    before = take(engineering, home)
    path.write_bytes(path.read_bytes().replace(b"handler_1", b"handler_8"))
    os.utime(path, (LONG_AGO.timestamp(), LONG_AGO.timestamp() + 1))
    after = take(engineering, home)
    assert after.digest == fresh(engineering, tmp_path).digest != before.digest


def test_a_line_is_counted_when_its_writer_has_finished_it(engineering: Bucket, home: Home) -> None:
    path = write_lines(engineering.root / "engineering/a.jsonl", [edit(1)])
    line = json.dumps(edit(2)).encode()
    with path.open("ab") as stream:
        stream.write(line[:100])
    assert take(engineering, home, LATER + dt.timedelta(days=9999)).rejected == {"not valid JSON": 1}
    with path.open("ab") as stream:
        stream.write(line[100:])
    whole = take(engineering, home, LATER + dt.timedelta(days=9999))
    assert (whole.trainable, whole.rejected) == (2, {})


def test_a_snapshot_does_not_change_when_the_corpus_does(engineering: Bucket, home: Home) -> None:
    path = write_lines(engineering.root / "engineering/a.jsonl", [edit(1), edit(2)])
    snapshot = take(engineering, home)
    before = {file.name: file.read_bytes() for file in snapshot.path.iterdir()}
    path.unlink()
    assert take(engineering, home).lines == 0
    assert {file.name: file.read_bytes() for file in snapshot.path.iterdir()} == before
    assert commits(load_snapshot(home, snapshot.bucket, snapshot.digest)) == {1, 2}


def test_a_damaged_index_is_made_anew(engineering: Bucket, home: Home) -> None:
    write_lines(engineering.root / "engineering/a.jsonl", [edit(1), edit(2)])
    before = take(engineering, home)
    for path in (home.cache / "corpus").glob("*.sqlite"):
        path.write_bytes(b"this is not a data base, " * 1000)
    assert take(engineering, home) == before
    (path,) = (home.cache / "corpus").glob("*.sqlite")
    with path.open("r+b") as stream:
        stream.seek(4096)
        stream.write(b"\xff" * (path.stat().st_size - 4096))
    assert take(engineering, home) == before
    shutil.rmtree(home.cache)
    assert take(engineering, home) == before


def test_an_empty_or_missing_bucket_is_an_empty_snapshot(engineering: Bucket, home: Home) -> None:
    snapshot = take(engineering, home)
    assert (snapshot.lines, snapshot.trainable, list(snapshot.rows())) == (0, 0, [])
    assert watermark(engineering) == watermark(engineering)


def test_a_snapshot_that_is_not_there_is_said_to_be_missing(home: Home) -> None:
    with pytest.raises(PermanentError, match="is not there"):
        load_snapshot(home, "engineering-acme", "0" * 64)
    with pytest.raises(InputError):
        load_snapshot(home, "../engineering-acme", "0" * 64)


def test_the_watermark_moves_when_a_file_is_added(engineering: Bucket) -> None:
    write_lines(engineering.root / "engineering/demo/a.jsonl", [edit(1)])
    seen = [watermark(engineering)]
    for place in ("engineering/demo/b.jsonl", "engineering/other/c.jsonl", "engineering/d.jsonl"):
        time.sleep(0.02)
        write_lines(engineering.root / place, [edit(2)])
        seen.append(watermark(engineering))
    assert len(set(seen)) == 4
    assert watermark(engineering) == seen[-1]


def _take_slowly(of: Bucket, home: Home) -> None:
    copy = snapshots._same_record

    def slowly(raw: bytes, key: bytes, path: str) -> tuple[str, dict[str, Any]]:
        time.sleep(0.002)
        return copy(raw, key, path)

    snapshots._same_record = slowly
    take(of, home)


def test_a_killed_process_leaves_nothing_half_written(engineering: Bucket, home: Home, tmp_path: Path) -> None:
    write_lines(engineering.root / "engineering/a.jsonl", [edit(number) for number in range(300)])
    context = multiprocessing.get_context("fork")
    folder = home.snapshots / engineering.name
    for _ in range(4):
        process = context.Process(target=_take_slowly, args=(engineering, home))
        process.start()
        while not list(folder.glob(".*")):
            time.sleep(0.005)
        time.sleep(random.random() * 0.2)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert not [path for path in folder.iterdir() if not path.name.startswith(".")]
    snapshot = take(engineering, home)
    assert snapshot.digest == fresh(engineering, tmp_path).digest
    assert [path.name for path in folder.iterdir()] == [snapshot.digest]


def test_two_processes_at_once_agree(engineering: Bucket, home: Home) -> None:
    write_lines(engineering.root / "engineering/a.jsonl", [edit(number) for number in range(100)])
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=take, args=(engineering, home)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert [path.name for path in (home.snapshots / engineering.name).iterdir()] == [take(engineering, home).digest]


def flip(path: Path) -> None:
    """One bit of a file, in its middle; a rewritten file, so that hard links elsewhere keep what they had."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)


def cut(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[: len(data) // 2])


DAMAGE: dict[str, Callable[[Path], Any]] = {"flipped": flip, "cut": cut, "gone": Path.unlink}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["manifest.json", "tuples-*.npy", "tuples-*.jsonl"])
def test_a_damaged_snapshot_is_taken_again_from_the_corpus(
    engineering: Bucket, home: Home, name: str, damage: str
) -> None:
    write_lines(engineering.root / "engineering/demo/a.jsonl", [edit(number) for number in range(30)])
    whole = take(engineering, home)
    before = [row.record for row in whole.rows()]
    DAMAGE[damage](next(whole.path.glob(name)))
    with pytest.raises(DamagedError, match="built from the corpus") as damaged:
        load_snapshot(home, engineering.name, whole.digest).check()
    mended = mended_snapshot(engineering, "sft", whole.digest, as_of=NIGHT, home=home, why=damaged.value)
    assert mended.digest == whole.digest and [row.record for row in mended.rows()] == before
    load_snapshot(home, engineering.name, whole.digest).check()
    assert not list(whole.path.parent.glob(".*"))


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_of_an_earlier_snapshot_does_not_reach_the_next(engineering: Bucket, home: Home, damage: str) -> None:
    write_lines(engineering.root / "engineering/demo/a.jsonl", [edit(number) for number in range(30)])
    first = take(engineering, home)
    DAMAGE[damage](next(first.path.glob("tuples-*.jsonl")))
    # So many that the first part is taken into a new one.
    write_lines(engineering.root / "engineering/demo/b.jsonl", [edit(number) for number in range(30, 60)])
    assert commits(take(engineering, home)) == {*range(60)}


def test_a_snapshot_that_the_corpus_has_left_behind_is_said_to_be_lost(engineering: Bucket, home: Home) -> None:
    write_lines(engineering.root / "engineering/demo/a.jsonl", [edit(number) for number in range(9)])
    lost = take(engineering, home)
    flip(next(lost.path.glob("tuples-*.jsonl")))
    write_lines(engineering.root / "engineering/demo/a.jsonl", [edit(number) for number in range(3)])
    with pytest.raises(DamagedError, match="from a backup"):
        mended_snapshot(engineering, "sft", lost.digest, as_of=NIGHT, home=home, why=DamagedError("lost"))
