"""What the disk changed, mended or not: a small file for each thing, shown until a person has acknowledged it.

Belongs here: the records, and how they come and go. Does not: what is damaged (`ec1/damage.py` says so), and the
nightly look (`recheck.py`). A disk that damages one file will damage another: that is why a mended one is shown too.
"""

import contextlib
import datetime as dt
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import BaseModel

from ec1.damage import DamageHandler
from ec1.errors import InputError
from ec1.files import digest_of, read_json, write_json
from ec1.home import Home
from ec1.night.health.finding import Symptom
from ec1.plural import counted
from ec1.strict_yaml import validate

_SHOWN = 3


class Damage(BaseModel):
    """One thing that was found damaged. `times` counts how often; `what` is the newest line about it."""

    id: str
    path: str
    what: str
    first: dt.datetime
    last: dt.datetime
    times: int = 1
    acknowledged: dt.datetime | None = None
    by: str | None = None

    @property
    def news(self) -> str:
        """What stands for this finding among those that were told: one that comes back is told again."""
        return f"storage {self.id} {self.first.isoformat()}"


def note(home: Home, path: Path, what: str, *, again: bool = True) -> None:
    """Keep that something is damaged, or was. Without `again` what is known already is not counted once more.

    Does nothing where the home takes no files.
    """
    now = dt.datetime.now(dt.UTC)
    name = path.relative_to(home.root).as_posix() if path.is_relative_to(home.root) else str(path)
    key, what = digest_of(name)[:12], what.replace(f"{home.root}/", "")
    with contextlib.suppress(OSError):
        known = _read(home.health / f"{key}.json")
        if known is not None and not again:
            return
        if known is None or known.acknowledged is not None:
            found = Damage(id=key, path=name, what=what, first=now, last=now, times=known.times + 1 if known else 1)
        else:
            found = known.model_copy(update={"what": what, "last": now, "times": known.times + 1})
        write_json(home.health / f"{key}.json", found.model_dump(mode="json"))


def recording(home: Home) -> None:
    """From now on, keep what any room of this process says of damage."""
    log = logging.getLogger("ec1")
    for handler in [each for each in log.handlers if isinstance(each, DamageHandler)]:
        log.removeHandler(handler)
    log.addHandler(DamageHandler(lambda path, what: note(home, path, what)))


def all_damage(home: Home) -> list[Damage]:
    """Every record, the newest last."""
    found = (_read(path) for path in sorted(home.health.glob("[0-9a-f]*.json")))
    return sorted((each for each in found if each is not None), key=lambda each: (each.last, each.id))


def open_damage(home: Home) -> list[Damage]:
    """What nobody has acknowledged yet."""
    return [each for each in all_damage(home) if each.acknowledged is None]


def acknowledge(home: Home, ids: Iterable[str], by: str) -> list[Damage]:
    """Mark records as seen by a person, by default all. Raises InputError for an id that is none."""
    waiting = {each.id: each for each in open_damage(home)}
    chosen = list(ids) or list(waiting)
    if unknown := sorted(set(chosen) - set(waiting)):
        raise InputError(f"{', '.join(unknown)}: nothing of that id waits to be acknowledged; `ec1 doctor` lists them")
    now = dt.datetime.now(dt.UTC)
    for each in chosen:
        seen = waiting[each].model_copy(update={"acknowledged": now, "by": by})
        write_json(home.health / f"{each}.json", seen.model_dump(mode="json"))
    return [waiting[each] for each in chosen]


def summary_of(found: list[Damage]) -> str:
    """A line: how much was damaged, and the newest of it."""
    newest = "; ".join(f"{each.what} (id {each.id})" for each in reversed(found[-_SHOWN:]))
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    were = "was" if len(found) == 1 else "were"
    return f"{counted(len(found), 'thing')} {were} damaged on the disk: {newest}{more}"


def symptoms(home: Home) -> Iterator[Symptom]:
    """What `ec1 doctor` says of it."""
    for each in open_damage(home):
        often = f", {each.times} times" if each.times > 1 else ""
        seen = f"since {each.first:%Y-%m-%d %H:%M} UTC{often}"
        yield Symptom("storage", "note", f"{each.id} {seen}: {each.what}; `ec1 doctor --acknowledge {each.id}`")


def _read(path: Path) -> Damage | None:
    """A record, or None for none; a damaged one is as good as none."""
    try:
        return validate(Damage, read_json(path), str(path))
    except (FileNotFoundError, InputError):
        return None
