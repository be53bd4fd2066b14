"""What must not come back into a home: tombstones of tuples and documents, and the records of removals.

A tombstone is a salted digest, of a tuple, its texts, the commit that it was cut from or a document's content, and a
signature that texts almost alike share. So what was removed stays out when its file comes back, also with a changed
character or from another commit, and nobody can read from a tombstone what was removed. How a removal is done:
`ec1.night.forgetting`.
"""

import hashlib
import hmac
import math
import re
import secrets
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

from ec1.corpus.folders import CorpusFolders
from ec1.corpus.tuples import TrainingTuple, texts_of
from ec1.errors import InputError
from ec1.files import digest_of, read_json, write_json

FILE = "tombstones.json"
_COMMIT = "source_commit:"
_CONTENT = "content:"
_SHINGLE = 5
_BITS = 256
_LEAST_SHINGLES = 10
"""A text with fewer holds too little to be like another: it is known by its words alone."""
_CHANGED = 0.02
"""Share of the characters that may have changed, one at least."""
_LONGER = 0.005
"""Share by which the length may differ, two characters at least: a sentence more makes another text."""
_PIECE = 4096


class Tombstones:
    """Marks of what must not come back, in one small file of the home. Asking costs nothing while there are none."""

    def __init__(self, home: CorpusFolders) -> None:
        self._path = home.removals / FILE
        found: Any = read_json(self._path) if self._path.is_file() else {}
        # An earlier release kept the digests as they are.
        plain = found if isinstance(found, list) else ()
        kept: dict[str, Any] = found if isinstance(found, dict) else {}
        self._salt = bytes.fromhex(kept.get("salt") or secrets.token_hex(16))
        self._known = set(kept.get("marks", ())) | {self._mark(each) for each in plain}
        self._likes: set[tuple[int, int, str]] = {
            (size, int(bits, 16), template) for size, bits, template in kept.get("likes", ())
        }
        self._lines: Any = None

    def __len__(self) -> int:
        return len(self._known)

    def refuses(self, item: TrainingTuple) -> bool:
        """Whether a tuple was removed before, itself, under another head, or with a few characters changed."""
        if not self._known:
            return False
        return not self._known.isdisjoint(map(self._mark, _names(item))) or self.refuses_text(_text_of(item))

    def refuses_commit(self, sha: str) -> bool:
        """Whether a tuple of that commit was removed before."""
        return self._mark(_COMMIT + sha) in self._known

    def refuses_content(self, sha256: str) -> bool:
        """Whether a document of these bytes was removed."""
        return bool(self._known) and self._mark(_CONTENT + sha256) in self._known

    def refuses_text(self, text: str) -> bool:
        """Whether a text, a tuple's or a document's, is a removed one or almost."""
        if not self._known:
            return False
        plain = _plain(text)
        if self._mark("text:" + plain) in self._known:
            return True
        shingles = len(plain) - _SHINGLE + 1
        if shingles < _LEAST_SHINGLES:
            return False
        template = self._template(plain)
        # Rows of one template that differ in numbers alone are different rows.
        near = [
            bits
            for size, bits, other in self._likes
            if other != template and abs(size - shingles) <= max(2, _LONGER * shingles)
        ]
        if not near:
            return False
        ours = self._signature(plain)
        return any(_BITS - (ours ^ bits).bit_count() >= _least_equal(shingles) for bits in near)

    def add(
        self,
        items: Iterable[TrainingTuple] = (),
        *,
        contents: Iterable[str] = (),
        texts: Iterable[str] = (),
    ) -> None:
        """Keep tuples, documents of these SHA-256 and these texts out from now on."""
        marks: set[str] = set()
        plains: set[str] = {_plain(text) for text in texts}
        for item in items:
            marks.update(map(self._mark, _names(item)))
            plains.add(_plain(_text_of(item)))
        marks |= {self._mark(_CONTENT + sha256) for sha256 in contents}
        likes: set[tuple[int, int, str]] = set()
        for plain in sorted(plains):
            marks.add(self._mark("text:" + plain))
            shingles = len(plain) - _SHINGLE + 1
            if shingles >= _LEAST_SHINGLES:
                likes.add((shingles, self._signature(plain), self._template(plain)))
        self._known |= marks
        self._likes |= likes
        write_json(
            self._path,
            {
                "salt": self._salt.hex(),
                "marks": sorted(self._known),
                "likes": [[size, f"{bits:0{_BITS // 4}x}", template] for size, bits, template in sorted(self._likes)],
            },
        )

    def _template(self, plain: str) -> str:
        return self._mark("template:" + re.sub(r"\d+", "0", plain))

    def _mark(self, name: str) -> str:
        return hmac.new(self._salt, name.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:32]

    def _signature(self, plain: str) -> int:
        """One bit of each of 256 salted minima over the text's shingles (Li and König, b-bit minwise hashing, 2010):
        enough to tell how alike two texts are, too little to guess a shingle from."""
        import numpy as np

        if self._lines is None:
            random = np.random.default_rng(int.from_bytes(self._salt))
            self._lines = random.integers(1, 2**63, size=(3, _BITS), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        factors, steps, (factor, *_) = self._lines
        characters = np.frombuffer(plain.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
        count = len(characters) - _SHINGLE + 1
        hashes = np.zeros(count, dtype=np.uint64)
        for offset in range(_SHINGLE):
            hashes = hashes * factor + characters[offset : offset + count]
        hashes = np.unique(_mixed(hashes))
        least = np.full(_BITS, np.iinfo(np.uint64).max, dtype=np.uint64)
        for start in range(0, len(hashes), _PIECE):
            each = _mixed(hashes[start : start + _PIECE, None] * factors + steps)
            least = np.minimum(least, each.min(axis=0))
        bits = (_mixed(least) >> np.uint64(40)) & np.uint64(1)
        return int("".join(map(str, bits.tolist())), 2)


def _mixed(values: Any) -> Any:
    """Each of some 64-bit numbers with its bits well stirred (the finaliser of SplitMix64)."""
    import numpy as np

    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _least_equal(shingles: int) -> float:
    """How many of the bits are equal, at least, of texts that differ in a few characters: 2.5 standard deviations below
    what their Jaccard similarity lets expect."""
    edits = max(1, round(_CHANGED * shingles))
    alike = max(0.0, (shingles - _SHINGLE * edits) / (shingles + _SHINGLE * edits))
    expected = (1 + alike) / 2
    return _BITS * (expected - 2.5 * math.sqrt(expected * (1 - expected) / _BITS))


def _plain(text: str) -> str:
    """The words of a text, in lower case, with one space between."""
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold()))


def _text_of(item: TrainingTuple) -> str:
    return "\n".join(texts_of(_example(item)))


def _example(item: TrainingTuple) -> dict[str, Any]:
    return {"prompt": list(item.prompt), "answer": [*(item.completion or ()), *(item.chosen or ())]}


def _names(item: TrainingTuple) -> Iterator[str]:
    yield item.digest
    yield digest_of(["texts", *texts_of(_example(item))])
    for source in item.sources:
        if source.startswith(_COMMIT):
            yield source


def removed_snapshots(home: CorpusFolders) -> frozenset[str]:
    """Digests of the snapshots that removals deleted: whatever was trained on them has to be trained again."""
    records = [path for path in home.removals.glob("*.json") if path.name != FILE]
    return frozenset(digest for path in records for digest in _snapshots(read_json(path)))


def _snapshots(record: Any) -> list[str]:
    if not isinstance(record, dict) or not isinstance(record.get("snapshots"), list):
        raise InputError("a record of removals/ is damaged: restore the home's removals/ from a backup")
    return list(record["snapshots"])
