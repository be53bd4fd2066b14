"""The base of all typed settings: of deployments and of recipes."""

from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from ec1.errors import InputError
from ec1.files import checked_name


def _name(value: str) -> str:
    try:
        return checked_name(value, "name")
    except InputError as error:
        raise ValueError(str(error)) from None


Name = Annotated[str, AfterValidator(_name)]


def _http_address(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise ValueError(f"{value!r} is not an http(s) address")
    return value.rstrip("/")


HttpAddress = Annotated[str, AfterValidator(_http_address)]


_SHIPPED = "shipped"
ShippedPath = Annotated[Path, _SHIPPED]
"""A path that EC1 itself may bring: where the project has nothing of that name, it is looked for in EC1's checkout."""


class Settings(BaseModel):
    """Base of all typed settings: unknown keys are refused, values do not change afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def unknown_keys(error: ValidationError) -> str:
    """The keys that were refused, if that is all that was wrong: with an intact file, another release knows them."""
    faults = error.errors(include_url=False)
    if any(each["type"] != "extra_forbidden" for each in faults):
        return ""
    return ", ".join(".".join(map(str, each["loc"])) for each in faults)


S = TypeVar("S", bound=Settings)


def with_absolute_paths(settings: S, project: Path, checkout: Path) -> S:
    """The same settings with every relative path in them, at any depth, below `project`; a `ShippedPath` that the
    project does not have is below `checkout`, if it is there."""

    def absolute(value: Any, shipped: bool) -> Any:
        if isinstance(value, Path):
            own = project / value.expanduser()
            return checkout / value if shipped and not own.exists() and (checkout / value).exists() else own
        if isinstance(value, Settings):
            return with_absolute_paths(value, project, checkout)
        if isinstance(value, tuple):
            return tuple(absolute(each, shipped) for each in value)
        if isinstance(value, dict):
            return {key: absolute(each, shipped) for key, each in value.items()}
        return value

    update = {}
    for name, field in type(settings).model_fields.items():
        old = getattr(settings, name)
        new = absolute(old, _SHIPPED in field.metadata or _names_shipped(field.annotation))
        if new != old:
            update[name] = new
    return settings.model_copy(update=update)


def _names_shipped(annotation: Any) -> bool:
    return _SHIPPED in getattr(annotation, "__metadata__", ()) or any(
        _names_shipped(each) for each in get_args(annotation)
    )
