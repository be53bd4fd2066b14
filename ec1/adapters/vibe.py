"""A vibe check: prompts that people keep for a role, and what each version answered to them.

A person who reads the same few answers of every version notices what no figure says. The prompts are one small file,
the answers a record per version, which keeps the prompts as they were asked then.
Belongs here: the files. Does not: asking a model (`ec1.queries.vibe`), and anything that decides: no gate reads this.
"""

import datetime as dt
import fcntl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import Field, ValidationError

from ec1.errors import DamagedError, InputError
from ec1.files import digest_of, write_atomic
from ec1.settings import S, Settings

MOST_PROMPTS = 100
BASE = "base"
"""Stands where a version has `v3`: the model without an adapter."""
_PROMPTS = "prompts.json"


class VibePrompt(Settings):
    """One question that every version is asked, by whom it was added and when."""

    text: str = Field(min_length=1, max_length=20_000)
    system: str = Field("", max_length=20_000)
    by: str = ""
    at: dt.datetime

    @property
    def id(self) -> str:
        """The same for the same question."""
        return digest_of([self.system, self.text])[:16]


class VibeAnswer(Settings):
    """What was answered to one prompt. `nats`: mean log-probability of a token's piece; None where the engine does not
    say. `end`: why the answer ended, such as `stop` or `length`."""

    prompt: str
    system: str
    text: str
    end: str
    nats: float | None
    at: dt.datetime


class VibeRecord(Settings):
    """What one version, or the base, answered, by the id of the prompt. `model` is the name that was asked for."""

    model: str
    max_tokens: int
    answers: dict[str, VibeAnswer]


class _Prompts(Settings):
    prompts: tuple[VibePrompt, ...]


class VibeBook:
    """The prompts and the answers of one role, in a folder of its own; nothing is made before something is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def prompts(self) -> tuple[VibePrompt, ...]:
        """In the order in which they were added. Raises DamagedError."""
        found = _read(self._folder / _PROMPTS, _Prompts)
        return found.prompts if found else ()

    def add(self, text: str, system: str, by: str) -> None:
        """Raises InputError for an empty prompt, one that is there, or one too many."""
        try:
            prompt = VibePrompt(text=text.strip(), system=system.strip(), by=by, at=_now())
        except ValidationError:
            raise InputError("a prompt has 1 to 20,000 characters") from None

        def added(known: tuple[VibePrompt, ...]) -> tuple[VibePrompt, ...]:
            if prompt.id in {each.id for each in known}:
                raise InputError("this prompt is in the vibe check already")
            if len(known) >= MOST_PROMPTS:
                raise InputError(f"a vibe check has {MOST_PROMPTS} prompts at most: take one out first")
            return (*known, prompt)

        self._change(added)

    def remove(self, prompt: str) -> None:
        """Take a prompt out by its id; answers to it are kept. Raises InputError if it is not there."""

        def left(known: tuple[VibePrompt, ...]) -> tuple[VibePrompt, ...]:
            if prompt not in {each.id for each in known}:
                raise InputError("this prompt is not in the vibe check")
            return tuple(each for each in known if each.id != prompt)

        self._change(left)

    def record(self, version: str) -> VibeRecord | None:
        """What a version (`v3` or `base`) answered so far. Raises DamagedError."""
        return _read(self._folder / f"{version}.json", VibeRecord)

    def records(self) -> dict[str, VibeRecord]:
        """All records by `v3` or `base`: the base first, then the versions in their order."""
        names = sorted((path.stem for path in self._folder.glob("v*.json")), key=lambda name: int(name[1:]))
        found = {name: self.record(name) for name in (BASE, *names)}
        return {name: each for name, each in found.items() if each is not None}

    def keep(self, version: str, model: str, max_tokens: int, answers: Mapping[str, VibeAnswer]) -> None:
        """Add answers to a version's record; those of another model (a base that was changed) are replaced."""
        with self._alone():
            before = self.record(version)
            same = before is not None and (before.model, before.max_tokens) == (model, max_tokens)
            known = before.answers if same and before else {}
            record = VibeRecord(model=model, max_tokens=max_tokens, answers={**known, **answers})
            write_atomic(self._folder / f"{version}.json", record.model_dump_json(indent=1))

    def _change(self, change: Callable[[tuple[VibePrompt, ...]], Sequence[VibePrompt]]) -> None:
        with self._alone():
            prompts = _Prompts(prompts=tuple(change(self.prompts())))
            write_atomic(self._folder / _PROMPTS, prompts.model_dump_json(indent=1))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def answered(prompt: VibePrompt, text: str, end: str, nats: float | None) -> VibeAnswer:
    """An answer that was given just now."""
    return VibeAnswer(prompt=prompt.text, system=prompt.system, text=text, end=end, nats=nats, at=_now())


def _read(path: Path, kind: type[S]) -> S | None:
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise DamagedError(f"{path} is damaged ({error.errors()[0]['msg']}): mend it, or delete it") from None


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC).replace(microsecond=0)
