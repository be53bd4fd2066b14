"""The base of all typed settings: of deployments and of recipes."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from ec1.errors import InputError
from ec1.files import checked_name


def _name(value: str) -> str:
    try:
        return checked_name(value, "name")
    except InputError as error:
        raise ValueError(str(error)) from None


Name = Annotated[str, AfterValidator(_name)]


class Settings(BaseModel):
    """Base of all typed settings: unknown keys are refused, values do not change afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)
