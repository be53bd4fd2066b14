"""What a model said at an earlier evaluation: base, incumbent and best are asked much the same at every one.

A file per model, in a folder per role, with a line per question. A model is its files, how it computes and with what; a
question is all that the answer depends on, as tokens and limits. A line without its own digest is as if it were not
there, and an answer that is not finite is not kept.

Belongs here: keeping and finding. Does not: what is asked, and of whom (`evaluation.py`).
"""

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ec1.adapters import likelihood, written
from ec1.answers import answering, success, wording
from ec1.files import digest_of, sha256_file, write_atomic

_LIBRARIES = ("torch", "transformers", "tokenizers", "peft")
_ASKED_BY = (likelihood, written, answering, success, wording)
_MODELS = 8
"""Files of a role: the base, the incumbent and the best, and some candidates that may yet become one."""


class Remembered:
    """What one model said. `found` of the `asked` questions had been asked before."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._before = _read(path) if path is not None and path.exists() else {}
        self._said: dict[str, Any] = {}
        self.asked = self.found = 0

    def said(self, questions: Sequence[Any], ask: Callable[[list[int]], Sequence[Any]]) -> list[Any]:
        """What the model says to each question. `ask` gets the places of those that it has not been asked before;
        questions and what is said are JSON values."""
        keys = [digest_of(each) for each in questions]
        self.asked += len(keys)
        self.found += sum(key in self._before for key in keys)
        self._said |= {key: self._before[key] for key in keys if key in self._before}
        places = [place for place, key in enumerate(keys) if key not in self._said]
        if places:
            self._said |= {keys[place]: said for place, said in zip(places, ask(places), strict=True)}
        return [self._said[key] for key in keys]

    def keep(self) -> None:
        """Keep what was said this time for the next one, and forget what was not asked any more."""
        if self._path is None:
            return
        lines = []
        for item in self._said.items():
            try:
                text = json.dumps(item, ensure_ascii=False, allow_nan=False)
            except ValueError:
                continue
            lines.append(f"{_digest(text)} {text}\n")
        write_atomic(self._path, "".join(lines))
        files = sorted(self._path.parent.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
        for path in files[:-_MODELS]:
            path.unlink(missing_ok=True)


def remembered(folder: Path | None, base: Path, adapter: Mapping[str, str] | None, computes: str) -> Remembered:
    """What was kept in `folder` of this model: a base with an adapter of these digests, or without one. `computes`: in
    which precision and on what device."""
    if folder is None:
        return Remembered()
    files = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(base.iterdir())]
    model = digest_of([str(base.resolve()), files, dict(adapter or {}), computes, _with()])
    folder.mkdir(parents=True, exist_ok=True)
    return Remembered(folder / f"{model[:32]}.jsonl")


@functools.cache
def _with() -> list[str]:
    """The libraries that answer, and the code of ours that asks."""
    return [*map(version, _LIBRARIES), *(sha256_file(Path(str(module.__file__))) for module in _ASKED_BY)]


def _read(path: Path) -> dict[str, Any]:
    found = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        digest, _, text = line.partition(" ")
        if digest == _digest(text):
            key, said = json.loads(text)
            found[key] = said
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
