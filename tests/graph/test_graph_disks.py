"""A graph whose file a disk changed, lost or refuses: damage is mended, a full or read-only disk is told and mends
itself."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from damage import cut, flip
from graph_samples import key, result
from test_ladybug_store import ACME, NIGHT, opened

from ec1.graph import file_seal

A, B = key("a.md"), key("b.md")
ROOT = Path(__file__).parents[2]


def filled(live: Path, published: Path) -> None:
    with opened(live, published) as store:
        store.apply(A, "mk-a", result("a", ACME), NIGHT)
        store.publish(published)


def holds(content: bytes) -> Callable[[Path], None]:
    return lambda path: (path.write_bytes(content), None)[1]


def cut_to(size: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, size)


def stamped(at: int) -> Callable[[Path], None]:
    """Eight bytes of another value, written by somebody whom no seal knows."""

    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[at : at + 8] = b"\xff" * 8
        path.write_bytes(data)

    return damage


DAMAGES: dict[str, Callable[[Path], None]] = {
    "one byte is left": holds(b"x"),
    "another file": holds(b"PK\3\4" * 4000),
    "zeros": holds(bytes(40960)),
    "its first page": cut_to(4096),
    "half of it": cut,
    "a flipped bit": flip,
    "another header": stamped(0),
    "another version": stamped(4),
    "another catalogue": stamped(12),
    "empty": holds(b""),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_live_graph_that_cannot_be_opened_is_replaced_by_the_copy(name: str, tmp_path: Path) -> None:
    live, published = tmp_path / "live", tmp_path / "published"
    filled(live, published)
    DAMAGES[name](live)
    with opened(live, published) as store:
        assert store.recovered is not None and str(published) in store.recovered
        assert set(store.ledger()) == {A}
        store.apply(B, "mk-b", result("b", ACME), NIGHT)
        store.publish(published)
    with opened(live, published) as store:
        assert store.recovered is None and set(store.ledger()) == {A, B}


@pytest.mark.parametrize("name", [each for each in DAMAGES if each != "another version"])
def test_with_both_copies_gone_it_starts_empty(name: str, tmp_path: Path) -> None:
    live, published = tmp_path / "live", tmp_path / "published"
    filled(live, published)
    DAMAGES[name](live)
    DAMAGES[name](published)
    with opened(live, published) as store:
        assert store.ledger() == {}
        store.apply(A, "mk-a", result("a", ACME), NIGHT)
        store.publish(published)
    with opened(live, published) as store:
        assert store.recovered is None and set(store.ledger()) == {A}
    assert file_seal.is_current(published) and not file_seal.is_damaged(published)


def test_what_was_sealed_and_cannot_be_opened_is_another_versions(tmp_path: Path) -> None:
    live, published = tmp_path / "live", tmp_path / "published"
    filled(live, published)
    stamped(4)(live)
    file_seal.seal(live)
    before = live.read_bytes()
    with pytest.raises(Exception, match="written by another version"), opened(live, published):
        pass
    assert live.read_bytes() == before and not live.with_name("live.damaged").exists()


WORKER = """
import sys
from pathlib import Path
from graph_samples import key, result
from test_ladybug_store import ACME, NIGHT, opened
from ec1.errors import DiskError
from ec1.graph.database import GraphDatabase

live, published = Path(sys.argv[1]) / "live", Path(sys.argv[1]) / "published"
if sys.argv[2] == "fill":
    # Somebody else takes the place between the look and the write.
    GraphDatabase._check_space = lambda self: None
try:
    with opened(live, published) as store:
        for number in range(2000 if sys.argv[2] == "fill" else 1):
            store.apply(key(f"{number}.md"), f"mk-{number}", result(f"c{number}", ACME), NIGHT)
            if number == 0:
                store.publish(published)
        print("recovered" if store.recovered else "whole", len(store.ledger()))
except (DiskError, OSError) as error:
    print("refused:", error)
"""


def test_a_full_and_a_read_only_disk_are_told_and_nothing_is_set_aside(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    (tmp_path / "worker.py").write_text(WORKER)
    run = f'"{sys.executable}" {tmp_path / "worker.py"} {place}'
    steps = [
        f"mount -t tmpfs -o size=4m tmpfs {place} || exit 77",
        f"{run} fill; echo status $?",
        f"ls {place}",
        f"mount -o remount,size=60m {place}; {run} one",
        f"mount -o remount,ro {place}; {run} one; ls {place}",
    ]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", "\n".join(steps)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/graph'}:{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("this user may not mount")
    full, status, *between, opened_again, read_only = [
        line for line in done.stdout.splitlines() if line.startswith(("refused", "status", "whole", "recovered"))
    ]
    assert full.startswith("refused:") and "the disk is full" in full, done.stdout + done.stderr
    assert status == "status 0" and not between, "the database must not end the process"
    # The write that was cut off is a torn log: the copy takes its place as soon as there is room.
    assert opened_again.split()[0] in ("recovered", "whole"), done.stdout
    assert read_only.startswith("refused:") and "read-only" in read_only.lower(), done.stdout
