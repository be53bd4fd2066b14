"""Kinds that other installed packages add to what a deployment can choose from, by entry points.

A package names a class of settings under the group of what it adds, and the kind is the entry point's name:

    [project.entry-points."ec1.stores"]
    ftp = "acme_ec1:FtpStoreSettings"

The class is a `Settings` with a field `kind` and a method that opens what it describes; which method is said where each
group is used (docs/extensions.md). https://packaging.python.org/en/latest/specifications/entry-points/
"""

from importlib.metadata import entry_points
from typing import Any

from pydantic import ValidationError, WrapValidator
from pydantic_core.core_schema import ValidatorFunctionWrapHandler

from ec1.settings import Settings


def or_extension(group: str) -> WrapValidator:
    """Let a field take settings of a kind that an installed package adds, too. A kind of ours is never replaced."""

    def validate(value: Any, ours: ValidatorFunctionWrapHandler) -> Any:
        try:
            return ours(value)
        except ValidationError as error:
            settings = _extension(group, value) if _is_unknown_kind(error) else None
            if settings is None:
                raise
            return settings

    return WrapValidator(validate)


def _is_unknown_kind(error: ValidationError) -> bool:
    return any(each["type"] == "union_tag_invalid" or each["loc"][-1:] == ("kind",) for each in error.errors())


def _extension(group: str, value: Any) -> Settings | None:
    """The settings of a section whose kind a package adds, or None. Raises ValueError for one that does not load."""
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    for point in entry_points(group=group, name=str(kind)):
        where = f"{point.value} of {point.dist.name if point.dist else 'an installed package'}"
        try:
            model = point.load()
        except (ImportError, AttributeError) as error:
            raise ValueError(f"kind {kind!r} is {where}, which does not load: {error}") from None
        if not (isinstance(model, type) and issubclass(model, Settings)):
            raise ValueError(f"kind {kind!r} is {where}, which is not a class of ec1.settings.Settings")
        return value if isinstance(value, model) else model.model_validate(value)
    return None
