"""What must not come back into a corpus: tombstones, and the records of removals.

A tombstone is a digest: of a tuple, of its texts, or of the commit that it was cut from. So a tuple stays out when its
file comes back, and nobody can read from a tombstone what was removed. How a removal is done:
`ec1.night.operations.removal`.
"""

from collections.abc import Iterable, Iterator

from ec1.corpus.folders import CorpusFolders
from ec1.corpus.tuples import TrainingTuple, texts_of
from ec1.files import digest_of, read_json, write_json

_TOMBSTONES = "tombstones.json"
_COMMIT = "source_commit:"


class Tombstones:
    """Digests of what must not come back, in one small file of the home."""

    def __init__(self, home: CorpusFolders) -> None:
        self._path = home.removals / _TOMBSTONES
        self._known: frozenset[str] = frozenset(read_json(self._path)) if self._path.is_file() else frozenset()

    def refuses(self, item: TrainingTuple) -> bool:
        """Whether a tuple was removed before, itself or under another head."""
        return bool(self._known) and not self._known.isdisjoint(_marks(item))

    def refuses_commit(self, sha: str) -> bool:
        """Whether a tuple of that commit was removed before."""
        return digest_of(_COMMIT + sha) in self._known

    def add(self, items: Iterable[TrainingTuple]) -> None:
        marks = {mark for item in items for mark in _marks(item)}
        write_json(self._path, sorted(self._known | marks))
        self._known |= marks


def _marks(item: TrainingTuple) -> Iterator[str]:
    yield item.digest
    example = {"prompt": list(item.prompt), "answer": [*(item.completion or ()), *(item.chosen or ())]}
    yield digest_of(["texts", *texts_of(example)])
    for source in item.sources:
        if source.startswith(_COMMIT):
            yield digest_of(source)


def removed_snapshots(home: CorpusFolders) -> frozenset[str]:
    """Digests of the snapshots that removals deleted: whatever was trained on them has to be trained again."""
    records = [path for path in home.removals.glob("*.json") if path.name != _TOMBSTONES]
    return frozenset(digest for path in records for digest in read_json(path)["snapshots"])
