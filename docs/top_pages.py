"""Puts the pages at the repository's top among those of the site: a hook of MkDocs, named in `mkdocs.yml`.

The README is the home page. Links between the two places are rewritten; MkDocs then checks them as it checks all.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

TOP = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_LINK = re.compile(r"\]\((?P<to>[\w./-]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the top pages to what MkDocs found in `docs`."""
    root = Path(config.config_file_path).parent
    for name, page in TOP.items():
        text = _LINK.sub(lambda link: f"]({_in_site(link['to'])}", (root / name).read_text())
        files.append(File.generated(config, page, content=text))
    return files


def _in_site(link: str) -> str:
    """Where a link of a top page leads in the site."""
    return TOP.get(link, link.removeprefix("docs/"))
