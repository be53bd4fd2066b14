"""A machine with eight cards, for tests: a fake NVML, which stands in `tests/fake_nvml/`, and what it tells."""

import json
import os
import sys
from pathlib import Path
from typing import Any

FAKE = Path(__file__).parent / "fake_nvml"


class EightCards:
    """The cards as NVML tells them; `tell` changes one while others look."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._cards: list[dict[str, Any]] = [{} for _ in range(8)]
        self._write()

    def tell(self, index: int, **state: Any) -> None:
        self._cards[index] = state
        self._write()

    def uuid(self, index: int) -> str:
        return str(sys.modules["pynvml"].uuid_of(index))

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that is to see these cards."""
        paths = [str(FAKE), str(FAKE.parent / "launch"), str(FAKE.parents[1])]
        return {"PATH": os.environ["PATH"], "FAKE_NVML": str(self.file), "PYTHONPATH": os.pathsep.join(paths)}

    def _write(self) -> None:
        scratch = self.file.with_suffix(".new")
        scratch.write_text(json.dumps(self._cards))
        scratch.replace(self.file)
