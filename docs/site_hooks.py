"""What MkDocs does not do by itself: its hooks, named in `mkdocs.yml`.

The pages at the repository's top are among those of the site, the README as its home; links between the two places are
rewritten, and MkDocs then checks them as it checks all. For programs, each page's Markdown lies beside it, and
`llms.txt` (https://llmstxt.org) leads to them.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

TOP = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_LINK = re.compile(r"\]\((?P<to>[\w./-]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the top pages to what MkDocs found in `docs`."""
    root = Path(config.config_file_path).parent
    for name, page in TOP.items():
        text = _LINK.sub(lambda link: f"]({_in_site(link['to'])}", (root / name).read_text())
        files.append(File.generated(config, page, content=text))
    return files


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Write a page's Markdown beside it."""
    copy = Path(config.site_dir) / page.file.src_uri
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(page.markdown or "")
    return output


def on_post_build(config: MkDocsConfig) -> None:
    """Write `llms.txt`, which refers to top pages where they stand in the repository."""
    text = (Path(config.docs_dir) / "llms.txt").read_text()
    site = Path(config.site_dir) / "llms.txt"
    site.write_text(_LINK.sub(lambda link: f"]({_in_site(link['to'].removeprefix('../'))}", text))


def _in_site(link: str) -> str:
    """Where a link of a top page leads in the site."""
    return TOP.get(link, link.removeprefix("docs/"))
