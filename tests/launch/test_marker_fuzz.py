"""Whatever lies in a store among the markers, a worker goes on: the good marker is done, and nothing is raised."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worker_parts import markers_of

from ec1.errors import BusyError
from ec1.files import canonical_json, digest_of
from ec1.launch.executor import Executor
from ec1.launch.launcher import DeviceGrant
from ec1.launch.marker_formats import WorkMarker
from ec1.launch.markers import PREFIX, PendingMarkers
from ec1.launch.orders import ORDERS, PROGRESS, RESULTS, SESSION, Order, own_version
from ec1.launch.worker import MarkerWorker
from ec1.storage.directory import DirectoryStore

FUZZ = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)
GOOD = "a" * 64
MARKER = {
    **{"adapter": "clerk-acme", "tenant": "acme", "role": "clerk", "version": 2, "what": "the training"},
    **{"triggered_at": "2026-06-09T02:12:00+00:00", "device": "cpu", "work": "b" * 64},
}
CONTRACT = {
    **{"adapter": "clerk-acme", "tenant": "acme", "role": "clerk", "version": 1, "method": "sft"},
    **{"triggered_at": "2026-06-09T02:12:00+00:00", "tuple_count": 60, "corpus_path": "c", "sample_files": ["a"]},
}
ORDER: dict[str, Any] = {
    **{"version": 1, "ec1": own_version(), "what": "the training", "module": "light_work", "device": "cpu"},
    **{"specification": {"output": "ec1-output:"}, "output": "adapter", "leave": []},
    "inputs": [{"name": "data", "files": {"a.txt": {"sha256": "c" * 64, "size": 3}}}],
}

odd_text = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["", "\0", "../../etc", "a/b", "\ud83d", "x" * 5000, "²", "9" * 400, "1e999", "-", ".", "\n"]),
)
odd = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from([10**4000, -(10**4000), 2**63, -1, 0, 3]),
        st.floats(),
        odd_text,
        st.sampled_from(["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-06-09T02:12:00", "b" * 64]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(odd_text, inner, max_size=4)),
    max_leaves=8,
)


def changed(record: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """The record with some of its fields changed, gone or new."""
    keys = st.one_of(st.sampled_from(sorted(record)), odd_text)
    some = st.dictionaries(keys, st.one_of(odd, st.just(...)), max_size=3)
    return some.map(lambda new: {key: value for key, value in {**record, **new}.items() if value is not ...})


def encoded(value: object) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def raw(record: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """Bytes in the place of a record."""
    return st.one_of(
        st.binary(max_size=200),
        changed(record).map(encoded),
        odd.map(encoded),
        st.integers(0, len(encoded(record))).map(lambda end: encoded(record)[:end]),
        st.sampled_from(
            [b"[" * 200_000, b'{"a":' * 50_000, b"\xef\xbb\xbf{}", b"1" * 9000, b"NaN", b"\0", b" " * 2**21]
        ),
        st.integers(1, 400).map(lambda deep: encoded(record)[:-1] + b', "x": ' + b"[" * deep + b"]" * deep + b"}"),
    )


names = st.one_of(
    st.sampled_from(["clerk-acme-2026-06-09.json", "clerk-acme-2026-13-40.json", "x.json", "No Name.json", ".json"]),
    st.from_regex(r"[a-z0-9-]{1,20}-[0-9]{4}-[0-9]{2}-[0-9]{2}\\.json", fullmatch=True),
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=40).map(
        lambda name: f"{name}.json"
    ),
    st.just("long-" * 39 + ".json"),
)
files = st.one_of(
    st.tuples(names, st.sampled_from(["", ".claimed", ".completed", ".failed", ".malformed", ".malformed.reason"])).map(
        "".join
    ),
    st.tuples(
        st.just(".attempts/"),
        names,
        st.sampled_from(["/0001", "/0002.released", "/stop", "/" + "9" * 150, "/²", "/-1", "/.released", "/0", "/7/8"]),
    ).map("".join),
    st.just(".clocks/left"),
)


@contextlib.contextmanager
def _taken(order: Order) -> Iterator[DeviceGrant]:
    """The card: everything but the process itself is tried."""
    raise BusyError("the card is taken")
    yield


def put(root: Path, key: str, data: bytes) -> None:
    """As another program may put it there: under any name, a while ago."""
    path = root / key
    with contextlib.suppress(OSError, ValueError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (1e9, 1e9))


def ask(markers: PendingMarkers, work: str, adapter: str) -> str:
    marker = WorkMarker.model_validate({**MARKER, "adapter": adapter, "work": work})
    return markers.ask(marker, "2026-06-10")


def goes_on(rubbish: dict[str, bytes], work: dict[str, bytes], orders: list[dict[str, Any]]) -> None:
    """A worker meets rubbish among the markers and in orders, and does the good marker all the same."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        store = DirectoryStore(root)
        markers = markers_of(store)
        for key, data in {**rubbish, **work}.items():
            put(root, key, data)
        for number, order in enumerate(orders):
            try:
                digest = digest_of(order)
            except (ValueError, RecursionError):
                continue
            put(root, f"{ORDERS}{digest}.json", canonical_json(order))
            ask(markers, digest, f"order-{number}")
        ask(markers, "b" * 64, "order")
        good = ask(markers, GOOD, "good")
        store.put_bytes(f"{RESULTS}{GOOD}.json", b"{}")
        executor = Executor(store, Path(folder) / "there", _taken, {}, name="w", modules=frozenset({"light_work"}))
        worker = MarkerWorker(markers, executor, name="w", device="cpu", beat_seconds=60)
        ended = {done.file: done.outcome for _ in range(2) for done in worker.run(None)}
        assert ended[good] == "completed"
        assert markers.state(good).name == "completed"
        assert not any(path.name == "escaped" for path in Path(folder).rglob("*"))
        for file in ended:
            if markers.state(file).name == "failed":
                assert markers.reason(file).encode()


everything = given(
    rubbish=st.dictionaries(files.map(lambda name: PREFIX + name), st.one_of(raw(MARKER), raw(CONTRACT)), max_size=4),
    work=st.dictionaries(
        st.sampled_from([f"{ORDERS}{'b' * 64}.json", f"{RESULTS}{'b' * 64}.json", f"{PROGRESS}{'b' * 64}/{SESSION}"]),
        raw(ORDER),
        max_size=3,
    ),
    orders=st.lists(changed(ORDER), max_size=2),
)


@settings(FUZZ, max_examples=60, derandomize=True)
@everything
def test_no_bytes_stop_a_worker(
    rubbish: dict[str, bytes], work: dict[str, bytes], orders: list[dict[str, Any]]
) -> None:
    goes_on(rubbish, work, orders)


@pytest.mark.soak
@settings(FUZZ, max_examples=int(os.environ.get("EC1_FUZZ_EXAMPLES", "20000")))
@everything
def test_no_bytes_stop_a_worker_for_long(
    rubbish: dict[str, bytes], work: dict[str, bytes], orders: list[dict[str, Any]]
) -> None:
    goes_on(rubbish, work, orders)
