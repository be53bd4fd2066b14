"""Where who asked for engines and the nodes that serve them tell each other things: a place in a store.

Belongs here: leaving a value under a name, and reading it. Does not: what is said (`cluster_engines.py`,
`ray_engines.py`).
"""

import json
from pathlib import Path
from typing import Any

from ec1.errors import ServiceError
from ec1.settings import Settings
from ec1.storage.settings import StoreSettings
from ec1.storage.store import NotFound, ObjectStore


class MeetingPlace(Settings):
    """A place in a store that both sides reach: a folder that both see, or a bucket."""

    store: StoreSettings
    prefix: str = ""

    def open(self) -> "Meeting":
        # A folder is named by the settings themselves.
        return Meeting(self.store.open(Path()), self.prefix)


class Meeting:
    """Values by name, each JSON. All raise ServiceError if the store does not answer."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self.store = store
        self._prefix = prefix

    def say(self, name: str, value: Any) -> None:
        self.store.put_bytes(f"{self._prefix}{name}", json.dumps(value).encode())

    def heard(self, name: str) -> Any:
        """What was said under this name; None if nothing."""
        try:
            return json.loads(self.store.get_bytes(f"{self._prefix}{name}"))
        except NotFound:
            return None
        except ValueError as error:
            raise ServiceError(f"{self._prefix}{name} is not JSON: {error}") from None

    def all_heard(self, beginning: str) -> list[Any]:
        """What was said under names that begin so, in their order."""
        names = sorted(item.key for item in self.store.list(f"{self._prefix}{beginning}"))
        found = [self.heard(name.removeprefix(self._prefix)) for name in names]
        return [each for each in found if each is not None]

    def take_back(self, name: str) -> None:
        self.store.delete(f"{self._prefix}{name}")

    def end(self) -> None:
        """Nothing of it is left."""
        for item in list(self.store.list(self._prefix)):
            self.store.delete(item.key)
