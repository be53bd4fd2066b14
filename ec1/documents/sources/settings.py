"""Where a stream's documents are, if not in a folder below the document root."""

from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ec1.documents.sources.source import Source
from ec1.settings import Settings
from ec1.storage.settings import StoreSettings


def _prefix(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or "\0" in value:
        raise ValueError(f"{value!r} is not a folder in the source")
    return "" if str(path) == "." else str(path)


Inside = Annotated[str, AfterValidator(_prefix)]


class StoreSource(Settings):
    """`kind: store`: objects in a bucket, or in whatever else can be a deployment's store."""

    kind: Literal["store"] = Field("store", description="chooses this section")
    store: StoreSettings = Field(description="which: as the deployment's own `store`")
    prefix: Inside = Field("", description="folder in it; default: all of it")

    def open(self, scratch: Path) -> Source:
        from ec1.documents.sources.objects import ObjectSource

        return ObjectSource(self.store.open(scratch), self.prefix)


class GitSource(Settings):
    """`kind: git`: the files of a Git repository on this machine, at a revision."""

    kind: Literal["git"] = Field("git", description="chooses this section")
    repository: Path = Field(description="a repository, with or without a work tree")
    revision: str = Field("HEAD", pattern=r"^[^\s:^~-][^\s:^~]*$", description="branch, tag or commit")
    folder: Inside = Field("", description="folder in it; default: all of it")

    def open(self, scratch: Path) -> Source:
        from ec1.documents.sources.git import GitFiles

        return GitFiles(self.repository, self.revision, self.folder)


class MaildirSource(Settings):
    """`kind: maildir`: a Maildir with its folders, as `mbsync`, `offlineimap` and mail servers write it."""

    kind: Literal["maildir"] = Field("maildir", description="chooses this section")
    path: Path = Field(description="the folder that holds `cur` and `new`")

    def open(self, scratch: Path) -> Source:
        from ec1.documents.sources.maildir import Maildir

        return Maildir(self.path)


class SlackSource(Settings):
    """`kind: slack`: an export of a Slack workspace; a document is a day of a channel."""

    kind: Literal["slack"] = Field("slack", description="chooses this section")
    path: Path = Field(description="the export: its folder, or the .zip file")

    def open(self, scratch: Path) -> Source:
        from ec1.documents.sources.opened import OpenedSlack

        return OpenedSlack(self.path)


SourceSettings = Annotated[StoreSource | GitSource | MaildirSource | SlackSource, Field(discriminator="kind")]
"""Where documents come from. `open` gets a folder that a store without a place of its own may use, and raises
InputError or ServiceError for what cannot be opened."""


class UnpackingSettings(Settings):
    """Limits of what one ZIP archive, mailbox or mail may hold, what is in it in turn included."""

    max_files: int = Field(100_000, gt=0, description="documents in it")
    max_mb: int = Field(4096, gt=0, description="size of all of it, unpacked, in MiB")
