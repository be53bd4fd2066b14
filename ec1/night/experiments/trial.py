"""A version tried by hand: prompts to the base and to it, side by side.

Belongs here: which version and prompts, and who answers: `ec1 serve` if it runs, else a process of our own under the
lease. Does not: how a model answers (`ec1.adapters.trial`), and any judgement (`ec1.adapters.gate`).
"""

import datetime as dt
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ec1.adapters.manifest import AdapterManifest
from ec1.adapters.scores import BASE
from ec1.adapters.trial import TrialAnswer, TrialSpec
from ec1.answers.answering import ModelAnswer
from ec1.answers.success import judged
from ec1.deployment import Deployment
from ec1.errors import BusyError, InputError, PermanentError, ServiceError
from ec1.files import read_json, write_json
from ec1.home import Home
from ec1.http import authorization
from ec1.launch.launcher import DeviceWork, Subject
from ec1.models import prepare_model
from ec1.night.launchers import open_launcher
from ec1.night.stores import open_registry
from ec1.recipes.evaluation import EvaluationOptions

Message = dict[str, str]


@dataclass(frozen=True)
class Prompt:
    """What to ask, and the right answer where it is known."""

    messages: Sequence[Message]
    expected: str | None = None


@dataclass(frozen=True)
class Tried:
    """What came of one prompt. `expected` is the right answer, where it is known; then it is known, too, which of the
    two is right."""

    name: str
    asked: str
    prompt: str
    expected: str | None
    base: TrialAnswer
    adapter: TrialAnswer
    base_right: bool | None = None
    adapter_right: bool | None = None


def prompts_in(file: Path) -> list[Prompt]:
    """A prompt a line; of JSON Lines (`.jsonl`) `prompt` of each object, and its `answer` if it has one.

    Raises InputError if there is none, or a line that is not one.
    """
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")  # Not at U+2028, which JSON may hold.
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: {error}") from None
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row: Any = {"prompt": line}
        if file.suffix == ".jsonl":
            try:
                row = json.loads(line)
            except ValueError as error:
                raise InputError(f"{file}, line {number}: {error}") from None
        said = [row.get("prompt"), row.get("answer", "")] if isinstance(row, dict) else [None]
        if not all(isinstance(each, str) for each in said) or not str(said[0]).strip():
            raise InputError(f'{file}, line {number}: not an object {{"prompt": text, "answer": text}}')
        found.append(Prompt([{"role": "user", "content": str(said[0])}], row.get("answer")))
    if not found:
        raise InputError(f"{file} has no prompt")
    return found


def try_version(
    deployment: Deployment,
    home: Home,
    manifest: AdapterManifest,
    prompts: Sequence[Prompt],
    *,
    system_prompt: str | None,
    max_tokens: int,
    wait_seconds: float,
    env: Mapping[str, str],
    url: str | None = None,
    api_key: str | None = None,
    progress: Callable[[str], None] = lambda message: None,
) -> list[Tried]:
    """Ask the base and a version each of `prompts`, or, without any, a held-out prompt of its role.

    `url`: the gateway to ask; without one that of this machine, if it serves the version, else a process under the
    lease answers. Raises InputError if there is no prompt, BusyError if the GPU stays taken, ServiceError or
    PermanentError if one of the two does not answer.
    """
    prompts = prompts or [_held_out(home, manifest)]
    conversations = [each.messages for each in prompts]
    if system_prompt:
        first = {"role": "system", "content": system_prompt}
        conversations = [each if each[0]["role"] == "system" else [first, *each] for each in conversations]
    name, base = manifest.name, manifest.base_model.id
    gateway = (url or f"http://127.0.0.1:{deployment.serving.port}").rstrip("/")
    if served := _serves(gateway, {base, name}, api_key):
        progress(f"asking `ec1 serve` at {gateway}")
        pairs = []
        for number, messages in enumerate(conversations, 1):
            base_answer, answer = (_ask(gateway, each, messages, max_tokens, api_key) for each in (base, name))
            pairs.append((base_answer, answer))
            if number % 10 == 0:
                progress(f"{number} of {len(conversations)} prompts answered")
    elif url:
        raise ServiceError(f"{gateway} does not serve both {base} and {name}, or is not ready")
    else:
        progress(f"no `ec1 serve` at {gateway} serves {name}: loading {base} and the adapter")
        pairs = _load_and_ask(deployment, home, manifest, conversations, max_tokens, wait_seconds, env)
    asked = f"ec1 serve at {gateway}" if served else f"this machine ({deployment.gpu.device})"
    return [_tried(name, asked, prompt, *pair) for prompt, pair in zip(prompts, pairs, strict=True)]


def _tried(name: str, asked: str, prompt: Prompt, base: TrialAnswer, adapter: TrialAnswer) -> Tried:
    said, expected = prompt.messages[-1]["content"], prompt.expected
    if expected is None:
        return Tried(name, asked, said, expected, base, adapter)
    base_right, right = (
        judged(ModelAnswer(each.text, each.cut), expected, said, EvaluationOptions()).right for each in (base, adapter)
    )
    return Tried(name, asked, said, expected, base, adapter, base_right, right)


def _held_out(home: Home, manifest: AdapterManifest) -> Prompt:
    """The shortest held-out prompt of the dataset that the version was trained on, and its answer."""
    import pyarrow.parquet as pq

    files = sorted((home.datasets / manifest.dataset.digest / "heldout").glob("*.parquet"))
    rows: list[dict[str, Any]] = [row for file in files for row in pq.read_table(file).to_pylist()]
    if not rows:
        raise InputError(f"the dataset of {manifest.name} is not on this machine: give a prompt after the name")

    def answer(row: dict[str, Any]) -> str:
        return "\n".join(message["content"] for message in row.get("completion") or row["chosen"])

    def length(row: dict[str, Any]) -> int:
        return sum(len(message["content"]) for message in row["prompt"]) + len(answer(row))

    row = min(rows, key=lambda row: (length(row), str(row.get("row"))))
    return Prompt([{"role": each["role"], "content": each["content"]} for each in row["prompt"]], answer(row))


def _serves(url: str, names: set[str], api_key: str | None) -> bool:
    """Whether the gateway that listens there, if any, has all of these. Raises ServiceError if it wants a key."""
    import httpx

    try:
        reply = httpx.get(f"{url}/v1/models", headers=authorization(api_key), timeout=5, trust_env=False)
        if reply.status_code in (401, 403):
            raise ServiceError(f"the server at {url} needs an API key: set EC1_API_KEY (`ec1 serve key add NAME`)")
        listed = {each["id"] for each in reply.json()["data"]} if reply.is_success else set()
        ready = httpx.get(f"{url}/readyz", timeout=5, trust_env=False).is_success
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return False
    return names <= listed and ready


def _ask(url: str, model: str, messages: Sequence[Message], max_tokens: int, api_key: str | None) -> TrialAnswer:
    import httpx

    question = {"model": model, "messages": list(messages), "max_tokens": max_tokens, "temperature": 0}
    try:
        reply = httpx.post(
            f"{url}/v1/chat/completions", json=question, headers=authorization(api_key), timeout=600, trust_env=False
        )
        reply.raise_for_status()
        choice = reply.json()["choices"][0]
        return TrialAnswer(text=str(choice["message"]["content"]).strip(), cut=choice.get("finish_reason") == "length")
    except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError) as error:
        raise ServiceError(f"{url} gave no answer of {model}: {str(error).splitlines()[0]}") from None


def _load_and_ask(
    deployment: Deployment,
    home: Home,
    manifest: AdapterManifest,
    conversations: Sequence[Sequence[Message]],
    max_tokens: int,
    wait_seconds: float,
    env: Mapping[str, str],
) -> list[tuple[TrialAnswer, TrialAnswer]]:
    """A process that loads base and adapter, under the lease, as an evaluation runs."""
    assert manifest.version is not None
    if deployment.machine is not None:
        raise InputError("a machine that is booted for nights answers nights only: choose another deployment")
    base = manifest.base_model
    model = prepare_model(base.id, base.revision, deployment.models, home.models)
    adapter = open_registry(deployment, home).fetch(manifest.tenant, manifest.role, manifest.version)
    night = deployment.current_night(dt.datetime.now(dt.UTC)).date
    gpu = deployment.gpu
    lease = deployment.gpu_lease(home)
    if (holder := lease.holder()) and holder.phase == "serving":
        # To wait would make it give way: users would lose their server for a trial.
        raise BusyError(f"{holder} has the card and does not serve {manifest.name}: stop it, or let it become ready")
    launcher = open_launcher(
        deployment,
        home,
        lambda: lease.hold("evaluation", night=night, holder="ec1 adapters try", wait_seconds=wait_seconds),
    )
    home.cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.cache, prefix="try-") as folder:
        output = Path(folder) / "answers.json"
        spec = TrialSpec(
            model=model,
            device=gpu.device,
            candidates={BASE: None, manifest.name: adapter},
            conversations=tuple(map(tuple, conversations)),
            max_tokens=max_tokens,
            output=output,
        )
        path = Path(folder) / "spec.json"
        write_json(path, spec.model_dump(mode="json"))
        work = DeviceWork(
            "the trial",
            "ec1.adapters.trial",
            path,
            gpu.device,
            Subject(manifest.tenant, manifest.role, night),
            inputs=(model, adapter),
            output=output,
        )
        launcher.run(work, env, home.logs / "adapters-try.log")
        if not output.is_file():
            raise PermanentError(f"the trial ended without answers: see {home.logs / 'adapters-try.log'}")
        answers = {
            name: [TrialAnswer.model_validate(each) for each in written] for name, written in read_json(output).items()
        }
    return list(zip(answers[BASE], answers[manifest.name], strict=True))
