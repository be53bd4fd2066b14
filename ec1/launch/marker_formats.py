"""The formats of a training-pending marker (docs/contracts.md): format 1 of the contract and our own format 2.

Belongs here: what a marker's bytes say. Does not: whose turn it is (`markers.py`).
"""

import datetime as dt
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_serializer, field_validator

from ec1.errors import InputError
from ec1.launch.untrusted import json_object
from ec1.settings import Name

MAX_BYTES = 2**20
"""Of a marker; ours have less than 500."""


class UnknownFormat(InputError):
    """A marker of a later format than those known here: it is for other programs, and is left alone."""


class _Base(BaseModel):
    # Others write them too, so fields that we do not know are ignored.
    model_config = ConfigDict(frozen=True)

    adapter: Name
    tenant: Name
    role: Name
    triggered_at: dt.datetime

    @field_validator("triggered_at")
    @classmethod
    def _aware(cls, value: dt.datetime) -> dt.datetime:
        if value.tzinfo is None:
            raise ValueError("needs a time zone")
        # At the ends of the calendar another time zone's time cannot be computed.
        if not 1970 <= value.year < 9999:
            raise ValueError("is not a time of our days")
        return value

    @field_serializer("triggered_at")
    def _with_offset(self, value: dt.datetime) -> str:
        # `+00:00` as in the contract: not every reader knows `Z`.
        return value.isoformat()


class Marker(_Base):
    """A marker of the contract: it asks for a whole training of one bucket."""

    adapter: Name = Field(description="the bucket, such as engineering-pointsav")
    corpus_path: str
    method: str
    version: Literal[1] = Field(1, description="of the marker's format")
    tuple_count: int = Field(ge=0)
    sample_files: tuple[str, ...] = ()


class WorkMarker(_Base):
    """A marker of ours: it asks for one piece of work whose order lies in the store."""

    adapter: Name = Field(description="names the marker's file")
    version: Literal[2] = Field(2, description="of the marker's format: who knows only 1 leaves it alone")
    what: str
    device: Literal["cuda", "cpu"]
    work: str = Field(pattern="^[0-9a-f]{64}$", description="digest of the order")


AnyMarker = Marker | WorkMarker
_ANY: TypeAdapter[AnyMarker] = TypeAdapter(Annotated[AnyMarker, Field(discriminator="version")])
_KNOWN = 2


def read_marker(data: bytes, file: str) -> AnyMarker:
    """The marker that `data` is. Raises UnknownFormat, and InputError, in one line that names `file`, if it is none."""
    value = {"version": 1, **json_object(data, file)}
    version = value["version"]
    if type(version) is not int or version < 1:
        raise InputError(f"{file}: version {str(version)[:40]!r} is not the number of a format")
    if version > _KNOWN:
        raise UnknownFormat(f"{file} has format {version}, and this version of EC1 knows the formats 1 and 2")
    try:
        return _ANY.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"][1:]) or "(top level)"
        raise InputError(f"{file}: {place}: {first['msg'].removeprefix('Value error, ')[:200]}") from None
