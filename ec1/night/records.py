"""What each step of a night writes down, one small JSON file a step, for the next step, the report and the auditor.

A record carries the run that wrote it, so that a report of a rerun does not show what an earlier run did.
"""

from pathlib import Path
from typing import Any

from ec1.errors import InputError
from ec1.files import read_json, write_json


class Records:
    """The records in one folder: a night's, or one recipe's of a night."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, step: str, run: str, value: dict[str, Any]) -> None:
        """Replace the record of a step, atomically."""
        write_json(self._path(step), {"run": run, **value})

    def read(self, step: str) -> dict[str, Any]:
        """The record of a step. Raises InputError that says which step to run first."""
        record = self.find(step)
        if record is None:
            raise InputError(
                f"there is no {step} of night {self.folder.name} in {self.folder}: "
                f"materialise `{step}` of that night first"
            )
        return record

    def find(self, step: str, run: str | None = None) -> dict[str, Any] | None:
        """The record of a step, or None; with `run`, only if that run wrote it."""
        path = self._path(step)
        if not path.exists():
            return None
        record: dict[str, Any] = read_json(path)
        return record if run is None or record.get("run") == run else None

    def _path(self, step: str) -> Path:
        return self.folder / f"{step}.json"
