"""Which folders the corpus keeps its things in. Does not belong here: where they are (`ec1.home`)."""

from pathlib import Path
from typing import Protocol


class CorpusFolders(Protocol):
    """What the corpus needs of a home, and no more; `ec1.home.Home` has it."""

    @property
    def snapshots(self) -> Path: ...

    @property
    def splits(self) -> Path: ...

    @property
    def datasets(self) -> Path: ...

    @property
    def high_water_marks(self) -> Path: ...

    @property
    def removals(self) -> Path: ...

    @property
    def cache(self) -> Path: ...
