"""Engineering tuples from a real git repository: edits in the format of docs/contracts.md, one or more a commit.

Belongs here: one stream of `git log`, and how a commit becomes a question with the text before the change and an answer
that a model could know. Does not: what is worth learning from (worth), cleaning (every tuple is cleaned when a dataset
is made), nor what is trainable (tuples).
"""

import logging
import re
import secrets
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ec1.corpus import worth
from ec1.errors import InputError, PermanentError
from ec1.files import canonical_json, checked_name, write_atomic
from ec1.git import ENVIRONMENT, git_command, what_git_said

log = logging.getLogger(__name__)

DOCTRINE_VERSION = "0.0.13"
CHARACTERS_PER_TOKEN = 3
"""Of diffs and code, on the safe side, where no base model is known whose tokenizer could count."""
MAX_TOKENS = 2000
"""Of a whole tuple, question and answer, by default."""
MAX_COMMITS = 2000
"""The newest ones, where no date is given."""
MAX_TUPLES = 20
"""Of one commit: one that touches more files is a sweep: some of it is enough."""

_CONTEXT = 20
"""Lines around a change that the question shows; the answer has three, as diffs do."""
_ANSWER_CONTEXT = 3
_BLOCK = 1 << 20
_MOST_CHARACTERS_PER_TOKEN = 16
"""Nothing that is longer fits, whatever the tokenizer: it is not asked about megabytes."""
Tokens = Callable[[Mapping[str, Any]], int]
"""How many tokens a tuple is for a base model, question, answer and template together."""
_TRAILER = re.compile(
    r"(?i)^(?:[a-z]+-(?:off-)?by|change-id|reviewed-on|reviewed-at|cc|git-svn-id|generated with|signed-off|bug-url|"
    r"pull-request|pr-url|refs?|link|tested-on|backport-of|commit-queue|auto-submit)\s*:|^\(cherry picked from commit"
)
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)")


@dataclass(frozen=True)
class GitCapture:
    """What was captured: tuples written and those that were there already, and what was left out, by reason."""

    written: int
    known: int
    dropped: dict[str, int]


@dataclass(frozen=True)
class _Commit:
    sha: str
    author: str
    email: str
    date: str
    message: str
    patch: bytes


@dataclass(frozen=True)
class _Edit:
    """One file's change: `before` is the text around it as it was, `diff` the answer."""

    path: str
    before: str
    diff: str


def estimated_tokens(record: Mapping[str, Any]) -> int:
    """Without a tokenizer."""
    return _characters(record) // CHARACTERS_PER_TOKEN


def capture(
    repo: Path,
    since: str | None,
    until: str | None,
    cluster: str,
    tenant: str,
    out: Path,
    *,
    max_tokens: int = MAX_TOKENS,
    tokens: Tokens = estimated_tokens,
    is_removed: Callable[[str], bool] = lambda sha: False,
) -> GitCapture:
    """Write the tuples of each commit to `<out>/<cluster>/<sha>.jsonl`; `out` is a corpus's `engineering` folder.

    `since` and `until` are dates as git understands them; a bare day means its start, in UTC; without `since` the
    newest MAX_COMMITS are read. A commit that does not fit into `max_tokens`, as `tokens` counts them, is split by
    file. `is_removed` tells commits that must not come back. Doing it again changes nothing. Raises InputError if
    `repo` is not a git repository.
    """
    checked_name(cluster, "cluster")
    checked_name(tenant, "tenant")
    dropped: Counter[str] = Counter()
    written = known = 0
    edge = _edge(repo)
    for commit in _commits(repo, since, until):
        if commit.sha in edge:
            dropped["commits whose parents a shallow clone lacks, so that what they changed is unknown"] += 1
            continue
        if is_removed(commit.sha):
            dropped["commits that were removed from the corpus"] += 1
            continue
        message = message_without_trailers(commit.message)
        reason = worth.unfit_commit(commit.author, commit.email, message, commit.message)
        if reason is not None:
            dropped[reason] += 1
            continue
        record = partial(_record, commit, message, cluster, tenant)
        tuples = _tuples(_edits(commit.patch, dropped), _Room(record, tokens, max_tokens), dropped)
        if not tuples:
            dropped["commits with nothing left"] += 1
            continue
        lines = b"".join(canonical_json(record(edits)) + b"\n" for edits in tuples)
        target = out / cluster / f"{commit.sha}.jsonl"
        if target.is_file() and target.read_bytes() == lines:
            known += len(tuples)
            continue
        write_atomic(target, lines)
        written += len(tuples)
    log.info("%s: %d tuples written, %d known, dropped: %s", repo, written, known, dict(dropped))
    return GitCapture(written, known, dict(dropped))


def message_without_trailers(message: str) -> str:
    """A commit's message without the lines that name people and tools. Those of a colleague's habit stay."""
    lines = message.strip().splitlines()
    while lines and (not lines[-1].strip() or _TRAILER.match(lines[-1].strip())):
        lines.pop()
    return "\n".join(line for line in lines if not re.match(r"(?i)(?:signed-off|co-authored)-by:", line)).strip()


def _record(commit: _Commit, message: str, cluster: str, tenant: str, edits: list[_Edit]) -> dict[str, Any]:
    return {
        "tuple_type": "edit",
        "cluster": cluster,
        "source_commit": commit.sha,
        "commit_msg": message,
        "author": commit.author,
        "created": commit.date,
        "scope": None,
        "tenant": tenant,
        "doctrine_version": DOCTRINE_VERSION,
        "before": "\n".join(edit.before for edit in edits),
        "diff": "".join(edit.diff for edit in edits),
        "diff_truncated": False,
    }


class _Room:
    """Whether edits of one commit fit into a tuple."""

    def __init__(self, record: Callable[[list[_Edit]], dict[str, Any]], tokens: Tokens, most: int) -> None:
        self._record, self._tokens, self._most = record, tokens, most

    def excess(self, edits: list[_Edit]) -> int:
        """By how many tokens they are too long; 0 or less if they fit."""
        record = self._record(edits)
        least = _characters(record) // _MOST_CHARACTERS_PER_TOKEN
        return (least if least > self._most else self._tokens(record)) - self._most

    def narrowed(self, edit: _Edit) -> _Edit | None:
        """The edit with less of what stands around its change, so that it fits; None if its change alone is most of
        the room, or more."""
        for _ in range(3):
            excess = self.excess([edit])
            characters = (len(edit.before) + len(edit.diff)) / max(1, excess + self._most)
            if len(edit.diff) > 0.7 * self._most * characters:
                return None
            if excess <= 0:
                return edit
            left = max(0, len(edit.before) - int(1.1 * excess * characters) - 1)
            edit = _Edit(edit.path, edit.before[:left].rpartition("\n")[0] if left > 200 else "", edit.diff)
        return edit if self.excess([edit]) <= 0 else None


def _tuples(edits: list[_Edit], room: _Room, dropped: Counter[str]) -> list[list[_Edit]]:
    """A commit whole if it fits, else file by file; a file that does not fit loses what stands around its change."""
    if not edits or room.excess(edits) <= 0:
        return [edits] if edits else []
    tuples: list[list[_Edit]] = []
    for edit in edits:
        if len(tuples) == MAX_TUPLES:
            dropped["files beyond a commit's limit"] += 1
        elif (narrowed := room.narrowed(edit)) is None:
            dropped["files whose change is too long to learn"] += 1
        else:
            tuples.append([narrowed])
    return tuples


def _characters(record: Mapping[str, Any]) -> int:
    return len(record["commit_msg"]) + len(record["before"]) + len(record["diff"])


def _edits(patch: bytes, dropped: Counter[str]) -> list[_Edit]:
    edits = []
    for raw in re.split(rb"(?m)^(?=diff --git )", patch):
        if not raw.startswith(b"diff --git "):
            continue
        text = _decoded(raw)
        reason = "files in an unknown encoding" if text is None else worth.unfit_file(text)
        if reason is not None or text is None:
            dropped[reason or ""] += 1
            continue
        edits.append(_edit(text))
    return edits


def _edit(segment: str) -> _Edit:
    """A file's change: with twenty lines around it as a question, with three and without `index` as an answer."""
    head, *hunks = re.split(r"(?m)^(?=@@ )", segment)
    kept = [line for line in head.splitlines() if not line.startswith(("index ", "similarity ", "dissimilarity "))]
    path = worth.path_of(segment) or ""
    pieces = [text for hunk in hunks if (text := _before(hunk))]
    before = f"{path}:\n" + "\n[…]\n".join(pieces) + "\n" if pieces else f"{path} is new.\n"
    diff = "\n".join(kept) + "\n" + "".join(narrowed for hunk in hunks for narrowed in _narrowed(hunk))
    return _Edit(path, before, diff)


def _before(hunk: str) -> str:
    return "\n".join(line[1:] for line in hunk.split("\n")[1:] if line.startswith((" ", "-")))


def _narrowed(hunk: str) -> Iterator[str]:
    """A hunk with much around each change as hunks with three lines around it."""
    first, *lines = hunk.rstrip("\n").split("\n")
    match = _HUNK.match(first)
    if match is None:
        yield hunk
        return
    changes = [place for place, line in enumerate(lines) if line[:1] in ("+", "-")]
    old, new = int(match[1]), int(match[3])
    place = 0
    for start, end in _runs(changes, len(lines)):
        skipped = sum(1 for line in lines[place:start] if line[:1] != "\\")
        old, new, place = old + skipped, new + skipped, end
        part = lines[start:end]
        removed = sum(1 for line in part if line[:1] not in ("+", "\\"))
        added = sum(1 for line in part if line[:1] not in ("-", "\\"))
        yield f"@@ -{old},{removed} +{new},{added} @@{match[5]}\n" + "\n".join(part) + "\n"
        old, new = old + removed, new + added


def _runs(changes: list[int], count: int) -> Iterator[tuple[int, int]]:
    start = end = -1
    for place in changes:
        if start >= 0 and place - end <= 2 * _ANSWER_CONTEXT:
            end = place + 1
            continue
        if start >= 0:
            yield max(0, start - _ANSWER_CONTEXT), min(count, end + _ANSWER_CONTEXT)
        start, end = place, place + 1
    if start >= 0:
        yield max(0, start - _ANSWER_CONTEXT), min(count, end + _ANSWER_CONTEXT)


def _decoded(raw: bytes) -> str | None:
    """A file's change as text: UTF-8, else what its bytes most likely are."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        from charset_normalizer import from_bytes

        best = from_bytes(raw).best()
        return None if best is None else str(best)


def _commits(repo: Path, since: str | None, until: str | None) -> Iterator[_Commit]:
    """Every commit that is not a merge, the oldest first, from one `git log`."""
    mark = secrets.token_hex(16)
    command = git_command(
        repo,
        *("-c", "core.quotepath=false", "-c", "diff.noprefix=false"),
        *("log", "-z", "-p", f"--format={mark}%H%x00%an%x00%ae%x00%cI%x00%B%x00{mark}", "--encoding=UTF-8"),
        *("--no-merges", "--reverse", "--no-color", "--no-ext-diff", "--no-textconv", "-M", f"-U{_CONTEXT}"),
        *("--src-prefix=a/", "--dst-prefix=b/", f"--since={_moment(since)}" if since else f"--max-count={MAX_COMMITS}"),
        *([f"--until={_moment(until)}"] if until else []),
        "HEAD",
    )
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=ENVIRONMENT)
        except FileNotFoundError:
            raise PermanentError("git is not installed: install it to capture tuples from a repository") from None
        assert process.stdout is not None
        try:
            waiting = b""
            separator = mark.encode()
            while block := process.stdout.read(_BLOCK):
                waiting += block
                # Of each commit two marks: before its head and after it. The last one may not be whole yet.
                pieces = waiting.split(separator)
                while len(pieces) >= 4:
                    yield _commit(pieces[1], pieces[2])
                    pieces = [b"", *pieces[3:]]
                waiting = separator.join(pieces)
            pieces = waiting.split(separator)
            if len(pieces) >= 3:
                yield _commit(pieces[1], pieces[2])
        finally:
            process.stdout.close()
            if process.poll() is None:
                process.terminate()
            process.wait()
        if process.returncode != 0:
            errors.seek(0)
            raise InputError(f"git log failed in {repo}: {_why_not(what_git_said(errors.read()))}")


def _edge(repo: Path) -> frozenset[str]:
    """The oldest commits of a shallow clone: for Git they add every file that there was."""
    command = git_command(repo, "rev-parse", "--git-path", "shallow")
    try:
        done = subprocess.run(command, capture_output=True, env=ENVIRONMENT, text=True)
        return frozenset((repo / done.stdout.strip()).read_text(encoding="ascii").split())
    except OSError:
        # A whole repository has no such file; that there is no Git is said where it is needed.
        return frozenset()


def _why_not(said: str) -> str:
    """What Git said, and what it means where that is not plain."""
    if "ambiguous argument 'HEAD'" in said:
        return "HEAD has no commits: there are none yet, or they are on another branch"
    if "promisor" in said:
        return f"it is a partial clone, and what it lacks is not fetched: clone it without --filter ({said})"
    return said


def _commit(head: bytes, patch: bytes) -> _Commit:
    sha, author, email, date, message = (part.decode(errors="replace") for part in head.split(b"\0")[:5])
    # `-z` ends a commit with a NUL instead of a line's end.
    return _Commit(sha, author, email, date, message.strip(), patch.strip(b"\0").lstrip(b"\n"))


def _moment(date: str) -> str:
    """A date for git, which reads a bare day as that day at the present time of day; here it is its first moment."""
    return f"{date}T00:00:00Z" if re.fullmatch(r"\d{4}-\d{2}-\d{2}", date) else date
