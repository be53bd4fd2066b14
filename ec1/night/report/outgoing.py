"""Notices on their way out: which were told, which still wait, kept in one small file of the home.

Belongs here: that each notice reaches each target once, and that a target that is down costs nothing but a later try.
Does not: which notices a night gives rise to (`notices.py`). A notice is at most repeated if the process is killed
between the target's answer and the next line of the file.
"""

import contextlib
import datetime as dt
import fcntl
import hashlib
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel

from ec1.errors import InputError
from ec1.files import read_json, write_json
from ec1.home import Home
from ec1.night_settings import NotifyEvent, NotifySettings
from ec1.strict_yaml import validate

KEEP_TRYING = dt.timedelta(days=7)
FORGET = dt.timedelta(days=400)
PING_SECONDS = 10.0
log = logging.getLogger(__name__)

_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_FROM_FILE = "file:"


class Notice(BaseModel):
    """One thing to tell. Of all notices with the same `key` one is told."""

    key: str
    event: NotifyEvent
    night: str
    title: str
    body: str


class Waiting(BaseModel):
    """A notice that some targets did not take yet, by the targets' own names, with what went wrong last."""

    notice: Notice
    since: dt.datetime
    targets: dict[str, str]


class State(BaseModel):
    """All that is remembered. `failing` is the newest night whose failure was told and not made good."""

    told: dict[str, dt.datetime] = {}
    waiting: list[Waiting] = []
    failing: str | None = None
    ping_problem: str | None = None


def read_state(home: Home) -> State:
    """What is remembered; nothing yet in a new home. Raises InputError for a damaged file."""
    path = _path(home)
    return validate(State, read_json(path), str(path)) if path.exists() else State()


def undelivered(home: Home, night: str) -> list[str]:
    """What could not be told about a night, each in one line."""
    try:
        state = read_state(home)
    except InputError as error:
        return [str(error)]
    lines = [
        f"notice not delivered: {each.notice.title} ({'; '.join(sorted(set(each.targets.values())))}); the next night "
        "tries again"
        for each in state.waiting
        if each.notice.night == night
    ]
    return lines + ([f"the ping was not answered: {state.ping_problem}"] if state.ping_problem else [])


@contextlib.contextmanager
def remembered(home: Home) -> Iterator[State]:
    """The state, for one process at a time; written when the block ends.

    Where the home cannot be written or the state not be read, something may be told twice: nothing at all would be
    worse.
    """
    with contextlib.ExitStack() as locked:
        with contextlib.suppress(OSError):
            home.notices.mkdir(parents=True, exist_ok=True)
            fcntl.flock(locked.enter_context((home.notices / ".lock").open("w")), fcntl.LOCK_EX)
        try:
            state = read_state(home)
        except InputError:
            with contextlib.suppress(OSError):
                _path(home).replace(home.notices / "state.damaged.json")
            state = State()
        except OSError:  # such as a home whose path is too long
            state = State()
        try:
            yield state
        finally:
            _write(home, state)


def deliver(
    home: Home, state: State, notices: list[Notice], settings: NotifySettings, environment: Mapping[str, str]
) -> None:
    """Tell what is new and what waits, to every target that lacks it. A target's trouble is kept, not raised."""
    now = dt.datetime.now(dt.UTC)
    urls = {_name(url): url for url in settings.urls}
    for notice in notices:
        if notice.key not in state.told:
            state.told[notice.key] = now
            if notice.event in settings.on and urls:
                state.waiting.append(Waiting(notice=notice, since=now, targets=dict.fromkeys(urls, "not tried yet")))
    # Before anything is sent: whoever is killed while sending does not make it new again.
    _write(home, state)
    for each in state.waiting:
        for target in list(each.targets):
            # A target that the deployment no longer names gets nothing.
            problem = send(urls[target], each.notice, environment) if target in urls else None
            if problem is None:
                del each.targets[target]
                _write(home, state)
            else:
                each.targets[target] = problem
    state.waiting = [each for each in state.waiting if each.targets and now - each.since < KEEP_TRYING]
    state.told = {key: when for key, when in state.told.items() if now - when < FORGET}


def send(url: str, notice: Notice, environment: Mapping[str, str]) -> str | None:
    """Send one notice to one target. Returns None, or what went wrong in words without secrets."""
    import apprise

    what = f"{urlsplit(url).scheme or 'target'}:"
    try:
        address = resolved(url, environment)
    except InputError as error:
        return f"{what} {error}"
    kinds = {"failure": apprise.NotifyType.FAILURE, "missing": apprise.NotifyType.FAILURE}
    kinds |= {"recovery": apprise.NotifyType.SUCCESS, "version": apprise.NotifyType.SUCCESS}
    logger = logging.getLogger("apprise")
    # Its warnings name addresses.
    before, logger.disabled = logger.disabled, True
    try:
        target = apprise.Apprise.instantiate(address, suppress_exceptions=True)
        if target is None:
            return f"{what} no address that Apprise knows: see its list of services"
        kind = kinds.get(notice.event, apprise.NotifyType.WARNING)
        sent = target.notify(title=notice.title, body=notice.body, notify_type=kind)
    except Exception as error:  # noqa: BLE001  somebody else's service must not fail a night
        return f"{what} {type(error).__name__}"
    finally:
        logger.disabled = before
    return None if sent else f"{what} it did not take the notice (is it up, is the address right?)"


def ping(url: str, environment: Mapping[str, str], *, succeeded: bool) -> str | None:
    """GET a healthchecks-style address, with `/fail` behind it after a failure. Returns None, or what went wrong."""
    import httpx

    try:
        address = resolved(url, environment).rstrip("/") + ("" if succeeded else "/fail")
        with httpx.Client(timeout=PING_SECONDS, transport=httpx.HTTPTransport(retries=2)) as client:
            status = client.get(address).status_code
    except InputError as error:
        return str(error)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return type(error).__name__
    return None if status < 400 else f"status {status}"


def resolved(url: str, environment: Mapping[str, str]) -> str:
    """An address with its secrets: `${NAME}` from the environment, or the whole of it from `file:PATH`.

    Raises InputError if one is not there.
    """
    if url.startswith(_FROM_FILE):
        path = Path(url.removeprefix(_FROM_FILE))
        try:
            return path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise InputError(f"the file {path} of an address cannot be read") from None
    if missing := [name for name in _PLACEHOLDER.findall(url) if not environment.get(name)]:
        raise InputError(f"{', '.join(missing)} is not set in the environment")
    return _PLACEHOLDER.sub(lambda match: environment[match[1]], url)


def _name(url: str) -> str:
    """A target's name in the file, which must hold no secret."""
    return hashlib.sha256(url.encode()).hexdigest()[:12]


def _path(home: Home) -> Path:
    return home.notices / "state.json"


def _write(home: Home, state: State) -> None:
    try:
        write_json(_path(home), state.model_dump(mode="json"))
    except OSError as error:
        log.warning("%s cannot be written (%s): a notice may be told twice", _path(home), error.strerror)
