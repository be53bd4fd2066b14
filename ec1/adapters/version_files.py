"""The files of one version: which of a candidate's are published, and whether they are what a manifest says.

Belongs here: files in a folder beside a manifest. Does not: whether an engine can serve them (`checks.py`), where they
are stored (`registry.py`).
"""

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

from ec1.adapters.manifest import ADAPTER_FILES, ATTACHMENTS, WEIGHTS, AdapterManifest, FileEntry
from ec1.errors import InputError, PermanentError
from ec1.files import sha256_file

log = logging.getLogger(__name__)


def collect(candidate: Path, staging: Path, attachments: Mapping[str, Path]) -> dict[str, FileEntry]:
    """Copy what may be published into `staging`; return the entries of the copies."""
    if not candidate.is_dir():
        raise InputError(f"{candidate} is not a folder: give the folder of a trained adapter")
    for name in attachments:
        if name not in ATTACHMENTS:
            raise InputError(f"{name!r} is not published beside an adapter: use one of {', '.join(ATTACHMENTS)}")
    sources = {name: candidate / name for name in (*ADAPTER_FILES, *ATTACHMENTS) if (candidate / name).is_file()}
    left_out = sorted({path.name for path in candidate.iterdir()} - sources.keys())
    if left_out:
        log.info("%s: not published: %s", candidate, ", ".join(left_out))
    files = {}
    for name, source in {**sources, **attachments}.items():
        shutil.copyfile(source, staging / name)
        files[name] = file_entry(staging / name)
    return files


def file_entry(path: Path) -> FileEntry:
    """Size and SHA-256 of a file."""
    return FileEntry(sha256=sha256_file(path), size=path.stat().st_size)


def check_scored(candidate: Path, manifest: AdapterManifest, files: Mapping[str, FileEntry]) -> None:
    """Raises PermanentError if the verdict was passed on other bytes than these, or does not say on which.

    A person may publish what was never scored (`override`).
    """
    scored = manifest.evaluation.scored if manifest.evaluation else {}
    if not scored and not manifest.override:
        raise PermanentError(f"{candidate} is not published: its verdict does not say which bytes were scored")
    found = {name: entry.sha256 for name, entry in files.items() if name in ADAPTER_FILES}
    if scored and scored != found:
        other = sorted(name for name in {*scored, *found} if scored.get(name) != found.get(name))
        raise PermanentError(
            f"{candidate}: {', '.join(other)} changed after the evaluation: its verdict is not theirs; evaluate again"
        )


def file_problems(folder: Path, manifest: AdapterManifest) -> list[str]:
    """What differs between a folder and its manifest; empty if nothing does."""
    problems = []
    for name, entry in manifest.files.items():
        path = folder / name
        if not path.is_file():
            problems.append(f"{name} is missing")
        elif path.stat().st_size != entry.size or sha256_file(path) != entry.sha256:
            problems.append(f"{name} is not the file that was published (SHA-256 differs)")
    if WEIGHTS not in manifest.files:
        problems.append(f"the manifest lists no {WEIGHTS}")
    return problems
