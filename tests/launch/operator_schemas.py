"""The operators' own schemas of the objects that we write, out of their CustomResourceDefinitions.

Renew one: `python tests/launch/operator_schemas.py VERSION SOURCE DEFINITION.yaml`. Descriptions are left out: they are
four fifths of the text.
"""

import json
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

SCHEMAS = Path(__file__).with_name("crds")


def operator_schema(api_version: str, kind: str) -> dict[str, Any]:
    """The schema of an object, such as ("ray.io/v1", "RayJob"). Raises FileNotFoundError if there is none."""
    group, _, version = api_version.partition("/")
    found: dict[str, Any] = json.loads((SCHEMAS / f"{group}-{version}-{kind}.json").read_text())
    return found["schema"]  # type: ignore[no-any-return]


def _short(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_short(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    # A property may be called `description`: then it is a schema, not a text.
    return {key: _short(value) for key, value in schema.items() if key != "description" or not isinstance(value, str)}


def convert(version: str, source: str, definition: Path) -> Path:
    """Write the schema of one served version of a definition, with where it came from. Returns the file."""
    found = YAML(typ="safe").load(definition.read_text(encoding="utf-8"))["spec"]
    (schema,) = (each["schema"] for each in found["versions"] if each["name"] == version)
    written = {"source": source, "schema": _short(schema["openAPIV3Schema"])}
    file = SCHEMAS / f"{found['group']}-{version}-{found['names']['kind']}.json"
    file.write_text(json.dumps(written, separators=(",", ":"), sort_keys=True) + "\n")
    return file


if __name__ == "__main__":
    print(convert(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
