"""The build backend: setuptools for a checkout (`pip install --editable .`), and a refusal of wheels and archives.

A wheel would hold the code without configs/, the sample and the workspace file, and would put packages called `jobs`
and `resources` among everybody's: it could not run a night. Interface: PEP 517 and PEP 660.
"""

from typing import NoReturn

from setuptools.build_meta import (
    build_editable,
    get_requires_for_build_editable,
    prepare_metadata_for_build_editable,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "prepare_metadata_for_build_editable",
]

REFUSAL = (
    "EC1 runs from a checkout and is not built as a wheel or an archive: clone it and run `make install` "
    "(or `pip install --editable .`); for servers see docs/server.md"
)


def build_wheel(*_: object, **__: object) -> NoReturn:
    raise SystemExit(REFUSAL)


def build_sdist(*_: object, **__: object) -> NoReturn:
    raise SystemExit(REFUSAL)
