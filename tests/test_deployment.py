"""A deployment is checked before anything is loaded, and each mistake is one line that says what and where."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ec1.cli import app
from ec1.deployment import load_deployment
from ec1.errors import InputError
from ec1.home import Home
from ec1.settings import Settings, ShippedPath, with_absolute_paths

GOOD = "tenant: acme\nrecipes: [recipes]\ninference: {kind: vllm, model: some/model}\n"


def project_with(tmp_path: Path, text: str) -> Path:
    folder = tmp_path / "configs" / "deployments"
    folder.mkdir(parents=True)
    (folder / "here.yaml").write_text(text)
    return tmp_path


def test_shipped_deployments_load(project: Path) -> None:
    for path in (project / "configs" / "deployments").glob("*.yaml"):
        assert load_deployment(path.stem, project).name == path.stem


def test_the_deployment_of_the_readme_loads(project: Path, tmp_path: Path) -> None:
    text = (project / "README.md").read_text().split("```yaml\n")[1].split("```")[0]
    assert load_deployment("here", project_with(tmp_path, text)).tenant == "acme"


def test_the_deployment_of_the_readme_passes_lint(project: Path, tmp_path: Path) -> None:
    """Its recipes are shipped ones: the same files are not rivals of themselves."""
    text = (project / "README.md").read_text().split("```yaml\n")[1].split("```")[0]
    arguments = ["--project", str(project_with(tmp_path, text)), "--deployment", "here", "recipe", "lint"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0 and "0 errors" in result.stdout, result.stdout


def test_paths_are_relative_to_the_project(tmp_path: Path) -> None:
    project = project_with(tmp_path, GOOD + "documents: {root: docs}\nstore: {kind: directory, root: bucket}\n")
    deployment = load_deployment("here", project)
    assert deployment.recipes == (project / "recipes",)
    assert deployment.documents_root(Home(tmp_path / "home")) == project / "docs"
    assert deployment.corpus_root(Home(tmp_path / "home")) == tmp_path / "home" / "training-corpus"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "colour: red\n", "here.yaml: colour: unknown key"),
        (GOOD + "extraction: {chunk_tokenz: 3}\n", "extraction.chunk_tokenz: unknown key"),
        (GOOD + "extraction: {chunk_tokens: many}\n", "extraction.chunk_tokens: input should be a valid integer"),
        (GOOD.replace("acme", "../acme"), "tenant: name '../acme' is not a valid name"),
        (GOOD + "schedule: {timezone: Mars/Olympus}\n", "schedule.timezone: 'Mars/Olympus' is not a time zone"),
        (GOOD + "notify: {by: 7 am}\n", "notify.by: "),
        (GOOD + "notify: {urls: ['mailto://me:hunter2@example.org']}\n", "notify.urls: address 1 holds a password"),
        (GOOD + "notify: {urls: ['file:secret']}\n", "name the file by its whole path"),
        (GOOD + "metrics: {textfile: figures.txt}\n", "does not end in .prom"),
        (GOOD + "gpu: {fsdp: true}\n", "set processes to their number"),
        (GOOD + "store: {kind: ftp}\n", "store"),
        (GOOD + "models: {m: {source: gguf-package}}\n", "needs package and file"),
        (GOOD + "extraction: {chunk_tokens: 4000}\n", "leave 256 or more"),
        (GOOD + "extraction: {max_answer_tokens: 500, reasoning_tokens: 480}\n", "leaves 20 tokens for the answer"),
        (GOOD + "extraction: {reasoning_tokens: 100}\n", "needs both inference.reasoning_parser and"),
        (GOOD.replace("kind: vllm", "kind: vllm, reasoning_parser: olmo3"), "set both or neither"),
        (GOOD.replace("kind: vllm", "kind: doorman, base_url: 'ftp://x'"), "'ftp://x' is not an http(s) address"),
        (GOOD.replace("kind: vllm", "kind: doorman, module_id: Acme"), "name 'Acme' is not a valid name"),
        (GOOD.replace("kind: vllm", "kind: doorman, complexity: {mail: low}"), "unknown stream 'mail'"),
        (GOOD.replace("kind: vllm", "kind: telepathy"), "inference"),
        ("recipes: [x]\n", "tenant: "),
        (GOOD + "tenant: twice\n", "here.yaml:4: found duplicate key"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_deployment("here", project_with(tmp_path, text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_deployment_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown deployment 'nowhere' .* choose one of here"):
        load_deployment("nowhere", project_with(tmp_path, GOOD))


def test_homes_that_share_a_card_share_its_lock(tmp_path: Path) -> None:
    """On a CPU each home has its own, unless it is asked to share."""
    homes = Home(tmp_path / "one"), Home(tmp_path / "two")

    def locks(gpu: str) -> list[Path]:
        folder = tmp_path / gpu.replace("/", "_")
        deployment = load_deployment("here", project_with(folder, GOOD + f"gpu: {gpu}\n"))
        return [deployment.gpu_locks(home)[0] for home in homes]

    cuda = locks("{device: cuda}")
    assert cuda[0] == cuda[1] and cuda[0].name == "ec1-gpu.lock" and cuda[0].parent.stat().st_mode & 0o1000
    assert locks("{device: cpu}") == [home.root / "gpu.lock" for home in homes]
    assert set(locks("{device: cpu, lock_dir: /srv/locks}")) == {Path("/srv/locks/ec1-gpu.lock")}
    assert set(locks("{device: cuda, lock: /srv/locks/card1}")) == {Path("/srv/locks/card1")}


def test_every_path_of_a_deployment_is_made_absolute(tmp_path: Path) -> None:
    """Whatever section it stands in, so that a new setting cannot be forgotten."""

    class Inner(Settings):
        file: Path
        own: ShippedPath | None = None

    class Outer(Settings):
        folder: Path | None
        many: tuple[ShippedPath, ...]
        inner: Inner
        by_name: dict[str, Inner]
        listed: tuple[Inner, ...]
        text: str

    checkout, project = tmp_path / "checkout", tmp_path / "project"
    for folder in (checkout / "brought", project / "both", checkout / "both"):
        folder.mkdir(parents=True)
    inner = {"file": "brought", "own": "brought"}
    outer = Outer.model_validate(
        {
            "folder": "/elsewhere",
            "many": ["brought", "both", "neither"],
            "inner": inner,
            "by_name": {"a": inner},
            "listed": [inner],
            "text": "both",
        }
    )
    found = with_absolute_paths(outer, project, checkout)
    assert found.folder == Path("/elsewhere")
    assert found.many == (checkout / "brought", project / "both", project / "neither")
    for each in (found.inner, found.by_name["a"], found.listed[0]):
        assert (each.file, each.own) == (project / "brought", checkout / "brought")
    assert found.text == "both"


@pytest.mark.parametrize(
    ("text", "most"),
    [
        (GOOD, 16),
        (GOOD.replace("}", ", max_num_seqs: 64}"), 128),
        (GOOD.replace("}", ", max_num_seqs: 64, cluster: {address: 'http://127.0.0.1:8265', engines: 8}}"), 1024),
        (GOOD.replace("}", ", max_num_seqs: 64}\nextraction: {max_in_flight: 5}"), 5),
        (GOOD.replace("kind: vllm", "kind: server, base_url: 'http://127.0.0.1:8000'"), 16),
    ],
)
def test_engines_of_our_own_are_asked_as_much_as_they_take(tmp_path: Path, text: str, most: int) -> None:
    assert load_deployment("here", project_with(tmp_path, text)).extraction.max_in_flight == most
