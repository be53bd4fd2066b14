"""Recipes: typed, strict, resolved with the origin of every value, and linted with messages that explain."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from ec1.deployment import Deployment
from ec1.errors import InputError, ServiceError
from ec1.models import prepare_model
from ec1.night.steps.recipes import nightly_recipes
from ec1.recipes.lint import lint
from ec1.recipes.resolution import LintFinding, find_recipe, load_recipe, parse_overrides, survey
from ec1.recipes.schema import PROJECTIONS, Recipe
from ec1.recipes.show import show


@pytest.fixture
def shipped(project: Path) -> Path:
    return project / "configs" / "recipes"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "recipes"
    folder.mkdir()
    return folder


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


HEAD = "extends: pointsav/engineering\nversion: 1\ntenant: acme\nrole: editor\n"


def test_base_has_the_values_of_the_contract(shipped: Path) -> None:
    recipe = load_recipe(shipped / "pointsav" / "engineering.yaml", [shipped]).recipe
    assert (recipe.method, recipe.objective) == ("qlora", "sft")
    assert recipe.quantization is not None and recipe.lora is not None
    assert (recipe.quantization.type, recipe.quantization.double) == ("nf4", True)
    assert (recipe.lora.r, recipe.lora.alpha, recipe.lora.dropout) == (16, 32, 0.0)
    assert recipe.lora.target_modules == PROJECTIONS
    wish = recipe.optimisation
    assert (wish.epochs, wish.learning_rate, wish.warmup_share) == (2, 2e-4, 0.03)
    assert (wish.batch_size, wish.gradient_accumulation, wish.gradient_checkpointing) == (4, 1, True)
    assert (recipe.data.max_length, recipe.data.threshold) == (2048, 50)
    assert recipe.base_model.id.lower().startswith("allenai/olmo-3-7b")


def test_apprenticeship_has_the_preference_values(shipped: Path) -> None:
    recipe = load_recipe(shipped / "pointsav" / "apprenticeship.yaml", [shipped]).recipe
    assert recipe.objective == "dpo" and recipe.dpo is not None
    assert (recipe.dpo.beta, recipe.optimisation.learning_rate) == (0.1, 1e-4)
    assert recipe.optimisation.evaluation_steps is not None, "the held-out margin is a curve"


def test_the_sample_is_a_delta_and_not_other_code(project: Path, shipped: Path) -> None:
    found, _ = survey([project / "examples" / "recipes"], [shipped])
    assert [(each.recipe.tenant, each.recipe.role) for each in found] == [
        ("fernhollow", "apprenticeship"),
        ("fernhollow", "engineering"),
    ]
    for each in found:
        real = load_recipe(shipped / "pointsav" / f"{each.recipe.role}.yaml", [shipped]).recipe
        # So small a model loses on 16-bit weights what it learnt on 4-bit ones: the sample's base is not quantised.
        assert (each.recipe.method, each.recipe.objective) == ("lora", real.objective)
        assert each.recipe.lora == real.lora and each.recipe.quantization is None
        assert each.recipe.optimisation.epochs <= real.optimisation.epochs
        assert each.recipe.data.max_length < real.data.max_length


def test_everything_shipped_is_free_of_errors(project: Path, shipped: Path) -> None:
    findings = lint([shipped, project / "examples" / "recipes"], [shipped])
    assert [str(finding) for finding in findings if finding.level == "error"] == []


def test_later_files_win_and_every_value_has_its_origin(own: Path) -> None:
    write(own, "base", "abstract: true\ndescription: base\nlora:\n  r: 8\n  alpha: 16\noptimisation:\n  epochs: 1\n")
    write(own, "mid", "extends: base\nabstract: true\nlora:\n  r: 32\n\noptimisation: {learning_rate: 2e-4}\n")
    text = (
        "extends: mid\nversion: 3\ntenant: acme\nrole: editor\nbase_model: {id: a/b}\nmethod: lora\nobjective: sft\n"
        "optimisation:\n  batch_size: 2\n  gradient_accumulation: 1\ndata: {max_length: 64}\n"
    )
    path = write(own, "team/leaf", text)
    resolved = load_recipe(path, [own])
    recipe = resolved.recipe
    assert recipe.lora is not None
    assert (recipe.lora.r, recipe.lora.alpha) == (32, 16)
    assert (recipe.optimisation.learning_rate, recipe.optimisation.epochs) == (2e-4, 1)
    assert recipe.name == "team/leaf" and recipe.version == 3
    assert recipe.description == "", "the description of a base does not describe what extends it"
    origins = {key: Path(value).name for key, value in resolved.origins.items()}
    assert origins["lora.r"] == "mid.yaml:4"
    assert origins["lora.alpha"] == "base.yaml:5"
    assert origins["optimisation.batch_size"] == "leaf.yaml:9"
    assert origins["lora.dropout"] == "default"
    assert [each.name for each in resolved.chain] == ["leaf.yaml", "mid.yaml", "base.yaml"]


def test_merge_keys_and_decimal_commas_get_a_message(own: Path, shipped: Path) -> None:
    shared = HEAD + "optimisation: &shared\n  epochs: 1\ndpo:\n  <<: *shared\n"
    with pytest.raises(InputError, match=r"x\.yaml:\d+: merge keys \(<<\) are not read"):
        load_recipe(write(own, "x", shared), [shipped])
    with pytest.raises(InputError, match=r"optimisation\.learning_rate: .*valid number.*'2,5e-4'"):
        load_recipe(write(own, "y", HEAD + "optimisation:\n  learning_rate: 2,5e-4\n"), [shipped])


def test_lists_are_replaced_and_null_takes_back(own: Path, shipped: Path) -> None:
    text = HEAD + "lora:\n  target_modules: [q_proj]\noptimisation:\n  warmup_share: null\n  warmup_steps: 7\n"
    recipe = load_recipe(write(own, "x", text), [shipped]).recipe
    assert recipe.lora is not None and recipe.lora.target_modules == ("q_proj",)
    assert (recipe.optimisation.warmup_share, recipe.optimisation.warmup_steps) == (None, 7)


def test_settings_from_outside_win_and_say_so(own: Path, shipped: Path) -> None:
    plain = load_recipe(write(own, "x", HEAD), [shipped])
    settings = ["optimisation.learning_rate=5e-4", "lora.target_modules=[q_proj, v_proj]", "lora.r=8", "lora.r=4"]
    found = find_recipe("x", [own, shipped], parse_overrides([*settings, "description=no"]))
    assert found.recipe.lora is not None
    assert (found.recipe.optimisation.learning_rate, found.recipe.lora.r) == (5e-4, 4)
    assert found.recipe.lora.target_modules == ("q_proj", "v_proj") and found.recipe.description == "no"
    assert found.recipe.lora.alpha == 32 and found.digest != plain.digest
    assert (found.origins["lora.r"], found.origins["lora.alpha"]) == ("--set", plain.origins["lora.alpha"])
    with pytest.raises(InputError, match=r"--set: optimisation\.epoch: unknown key; did you mean 'epochs'"):
        find_recipe("x", [own, shipped], parse_overrides(["optimisation.epoch=1"]))
    for wrong in ("optimisation.epochs", "=1", "a..b=1", "extends=base", "lora.r=[1"):
        with pytest.raises(InputError, match=r"^--set "):
            parse_overrides([wrong])


def test_digest_follows_the_values_and_not_the_wording(own: Path, shipped: Path) -> None:
    digests = {
        name: load_recipe(write(own, name, HEAD + more + "name: same\n"), [shipped]).digest
        for name, more in {
            "plain": "",
            "described": "description: other words\n",
            "same-value": "optimisation:\n  learning_rate: 0.0002\n",
            "other-value": "optimisation:\n  learning_rate: 3e-4\n",
        }.items()
    }
    assert digests["plain"] == digests["described"] == digests["same-value"] != digests["other-value"]


def test_shown_recipe_parses_back_to_the_same(project: Path, shipped: Path) -> None:
    resolved = load_recipe(project / "examples" / "recipes" / "apprenticeship.yaml", [shipped])
    text = show(resolved)
    assert Recipe.model_validate(YAML(typ="safe", pure=True).load(text)) == resolved.recipe
    line = next(line for line in text.splitlines() if line.strip().startswith("beta:"))
    assert line.endswith("configs/recipes/pointsav/apprenticeship.yaml:10"), line


def test_missing_base_and_circles_name_file_and_chain(own: Path) -> None:
    with pytest.raises(InputError, match=r"x\.yaml:1: extends: there is no recipe 'team/none'"):
        load_recipe(write(own, "x", "extends: team/none\n"), [own])
    write(own, "a", "extends: b\n")
    write(own, "b", "extends: a\n")
    with pytest.raises(InputError, match=r"circle: .*a\.yaml -> .*b\.yaml -> .*a\.yaml"):
        load_recipe(own / "a.yaml", [own])


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../secret", "a.yaml", "", "A"])
def test_bases_stay_inside_the_search_folders(own: Path, name: str) -> None:
    write(own.parent, "secret", "version: 1\n")
    with pytest.raises(InputError, match="is not a recipe name"):
        load_recipe(write(own, "x", f"extends: '{name}'\n"), [own])


def test_a_link_out_of_the_search_folder_is_no_base(own: Path) -> None:
    outside = write(own.parent, "secret", "version: 1\n")
    (own / "inside.yaml").symlink_to(outside)
    with pytest.raises(InputError, match="there is no recipe 'inside'"):
        load_recipe(write(own, "x", "extends: inside\n"), [own])


def test_two_recipes_for_one_role_are_refused(own: Path, shipped: Path) -> None:
    write(own, "one", HEAD)
    write(own, "two", HEAD)
    found, broken = survey([own], [shipped])
    assert [each.recipe.name for each in found] == ["one"]
    assert re.search(r"two\.yaml and .*one\.yaml are both recipes for acme/editor", broken[0].problem)
    assert any("acme/editor has a recipe already" in str(finding) for finding in lint([own], [shipped]))


def test_a_file_that_two_folders_hold_is_no_rival_of_itself(own: Path, shipped: Path) -> None:
    write(own, "inner/one", HEAD)
    assert not [each for each in lint([own, own / "inner"], [own, own / "inner", shipped]) if each.level == "error"]
    assert len(survey([own, own / "inner"], [shipped])[0]) == 1


def test_a_recipe_of_the_project_takes_the_place_of_a_shipped_one(own: Path, shipped: Path) -> None:
    """It may extend the one whose place it takes, and whatever extends that name gets the project's."""
    text = "extends: pointsav/engineering\nversion: 2\nrole: engineering\ntenant: pointsav\n"
    mine = write(own, "pointsav/engineering", text + "lora:\n  r: 8\n")
    for folders in ([own, shipped], [shipped, own]):
        assert not [each for each in lint(folders, [own, shipped]) if each.level == "error"]
        (stands,) = [each for each in survey(folders, [own, shipped])[0] if each.recipe.name == "pointsav/engineering"]
        assert stands.path == mine and stands.recipe.lora is not None and stands.recipe.lora.r == 8
    assert load_recipe(write(own, "x", HEAD), [own, shipped]).chain[1:3] == (
        mine.resolve(),
        shipped / "pointsav" / "engineering.yaml",
    )


def test_abstract_recipes_are_bases_only(own: Path, shipped: Path) -> None:
    write(own, "base", HEAD + "abstract: true\n")
    assert survey([own], [shipped]) == ([], [])
    assert lint([own], [shipped]) == []
    with pytest.raises(InputError, match="abstract: extend it"):
        load_recipe(own / "base.yaml", [shipped])


def test_what_only_a_person_may_start_is_no_part_of_any_night(
    project: Path, embedded: Deployment, own: Path, shipped: Path
) -> None:
    """Schedule, sensor and backfill start the assets of the nightly recipes; there is no asset to start it with."""
    write(own, "nightly", HEAD)
    write(own, "more", HEAD.replace("editor", "texts") + "kind: pretraining\n")
    write(own, "whole", HEAD.replace("editor", "whole") + "method: full\nquantization: null\nlora: null\n")
    deployment = embedded.model_copy(update={"recipes": (own,)})
    assert [each.recipe.role for each in nightly_recipes(deployment, project)] == ["editor"]
    warnings = {finding.message.split(":")[0]: finding.message for finding in lint([own], [shipped])}
    assert "pretraining gives no adapter that a night could publish: start it with `ec1 train`" in warnings["kind"]
    assert "full gives no adapter" in warnings["method"]


BROKEN = {
    "misspelt key": ("optimisation:\n  learning_rat: 1e-4\n", r":6: .*unknown key; did you mean 'learning_rate'\?"),
    "misspelt section": ("optimization: {}\n", r":5: .*did you mean 'optimisation'\?"),
    "unheard-of key": ("zebra: 1\n", r":5: .*zebra: unknown key$"),
    "duplicate key": ("role: other\n", r"duplicate key"),
    "bad YAML": ("lora: [1\n", r":\d+: "),
    "not a mapping": ("lora: 16\n", r":5: error: lora: "),
    "word for a number": ("lora:\n  r: many\n", r":6: .*lora\.r: .*not 'many'"),
    "rank of zero": ("lora:\n  r: 0\n", r"lora\.r: .*greater than or equal to 1, not 0"),
    "half a rank": ("lora:\n  r: 16.5\n", r"lora\.r: .*integer.*not 16\.5"),
    "rate too high": ("optimisation:\n  learning_rate: 3\n", r"learning_rate: .*less than 1, not 3"),
    "negative epochs": ("optimisation:\n  epochs: -1\n", r"epochs: .*greater than 0"),
    "unknown method": ("method: adapter\n", r"method: .*'full', 'lora' or 'qlora', not 'adapter'"),
    "unknown objective": ("objective: ppo\n", r"objective: .*'orpo', 'simpo', 'grpo', 'rft' or 'clm', not 'ppo'"),
    "unknown scheduler": ("optimisation:\n  scheduler: wavy\n", r"scheduler: .*not 'wavy'"),
    "dpo without its section": ("objective: dpo\n", r"objective dpo needs the section dpo with beta"),
    "qlora without quantisation": ("quantization: null\n", r"method qlora needs a quantization section"),
    "lora without its section": ("lora: null\n", r"method qlora needs a lora section"),
    "both warm-ups": ("optimisation:\n  warmup_steps: 5\n", r"warmup_share and warmup_steps are both set"),
    "head as a target": ("lora:\n  target_modules: [lm_head]\n", r"lm_head cannot carry an adapter"),
    "no target": ("lora:\n  target_modules: []\n", r"target_modules: names no layer"),
    "other word for all targets": ("lora:\n  target_modules: all\n", r"target_modules.*'all-linear'"),
    "trained whole": (
        "lora:\n  modules_to_save: [norm]\n",
        r"modules_to_save cannot be served by vLLM.*kind pretraining",
    ),
    "packed pairs": (
        "objective: dpo\ndpo: {beta: 0.1}\noptimisation: {packing: true}\n",
        r"packing is for objective sft or clm only",
    ),
    "least rate without cosine": ("optimisation: {min_rate_share: 0.1}\n", r"min_rate_share is for scheduler cosine"),
    "patience without measurements": (
        "optimisation: {early_stopping_patience: 2}\n",
        r"early_stopping_patience needs evaluation_steps",
    ),
    "mixed with itself": ("data:\n  mix: {editor: 0.5}\n", r"data\.mix names editor, the recipe's own role"),
    "weight of nothing": ("data:\n  mix: {general: 0}\n", r"general: a weight is more than 0"),
    "unknown loss": ("objective: dpo\ndpo: {beta: 0.1, loss: ppo}\n", r"dpo\.loss: .*not 'ppo'"),
    "smoothing without effect": (
        "objective: dpo\ndpo: {beta: 0.1, label_smoothing: 0.1}\n",
        r"label_smoothing has no effect with loss sigmoid",
    ),
    "robust without smoothing": (
        "objective: dpo\ndpo: {beta: 0.1, loss: robust}\n",
        r"loss robust needs label_smoothing: about 0\.1",
    ),
    "target twice": ("lora:\n  target_modules: [q_proj, q_proj]\n", r"named twice"),
    "a path for a model": ("base_model:\n  id: /data/weights/olmo\n", r"is not a model id such as owner/name"),
    "threshold of zero": ("data:\n  threshold: 0\n", r"data\.threshold: .*greater than or equal to 1"),
    "unknown base": ("", r"there is no recipe"),
    "an anchor in itself": ("data: &a {mix: *a}\n", r":5: .*the anchor &a holds itself"),
    "paged optimiser on a CPU": (
        "hardware: {device: cpu}\noptimisation: {optimizer: paged_adamw_8bit}\n",
        r"paged_adamw_8bit needs hardware\.device cuda",
    ),
    "held-out share of one": ("data:\n  heldout_share: 1\n", r"data\.heldout_share: .*less than 1"),
    "margin as text": ("evaluation:\n  keep_share: small\n", r"evaluation\.keep_share: .*not 'small'"),
    "other 4-bit type": ("quantization:\n  type: fp4\n", r"quantization\.type: .*'nf4', not 'fp4'"),
    "abstract by word": ("abstract: maybe\n", r"abstract: use true or false, not 'maybe'"),
    "unknown kind": (
        "kind: continued-pretraining\n",
        r"kind: .*'adapter', 'extraction', 'pretraining' or 'experiment', not 'continued-pretraining'",
    ),
    "orpo without its section": ("objective: orpo\n", r"objective orpo needs the section orpo with beta"),
    "simpo without its section": ("objective: simpo\n", r"objective simpo needs the section simpo with beta and gamma"),
    "pre-training on pairs": (
        "kind: pretraining\nobjective: dpo\ndpo: {beta: 0.1}\n",
        r"kind pretraining learns from every token: objective is sft or clm, not dpo",
    ),
    "texts for an adapter": ("objective: clm\n", r"objective clm learns texts that answer nothing: kind pretraining"),
    "noise on pairs": (
        "objective: dpo\ndpo: {beta: 0.1}\noptimisation: {neftune_alpha: 5}\n",
        r"neftune_alpha is for objective sft or clm only",
    ),
    "Triton kernels on a CPU": (
        "hardware: {device: cpu}\noptimisation: {liger_kernels: true}\n",
        r"liger_kernels needs hardware\.device cuda",
    ),
    "DoRA on 4 bits": ("lora: {dora: true}\n", r"lora\.dora cannot be served by vLLM"),
    "DoRA each night": (
        "method: lora\nquantization: null\nlora: {dora: true}\n",
        r"lora\.dora cannot be served by vLLM.*kind experiment",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_lint_explains_what_is_broken(own: Path, shipped: Path, what: str) -> None:
    more, message = BROKEN[what]
    head = HEAD.replace("pointsav/engineering", "pointsav/enginering") if what == "unknown base" else HEAD
    path = write(own, "x", head + more)
    errors = [finding for finding in lint([own], [shipped]) if finding.level == "error"]
    assert errors, what
    assert any(re.search(message, str(finding)) for finding in errors), "\n".join(map(str, errors))
    assert all("x.yaml" in finding.where and "\n" not in str(finding) for finding in errors)
    with pytest.raises(InputError) as caught:
        load_recipe(path, [shipped])
    assert "\n" not in str(caught.value)


def test_a_mistake_in_a_base_is_told_where_it_was_made(own: Path) -> None:
    write(own, "base", "abstract: true\nlora:\n  r: many\n")
    write(own, "leaf", "extends: base\nversion: 1\ntenant: a\nrole: b\n")
    found = [finding for finding in lint([own / "leaf.yaml"], [own]) if finding.message.startswith("lora.r")]
    assert [Path(finding.where).name for finding in found] == ["base.yaml:3"]


def test_missing_values_are_all_named_at_once(own: Path) -> None:
    errors = lint([write(own, "x", "version: 1\n")], [own])
    named = {finding.message.split(":")[0] for finding in errors}
    assert {"tenant", "role", "base_model", "method", "objective", "optimisation", "data"} <= named


def test_advice_is_a_warning_and_does_not_stop(own: Path, shipped: Path) -> None:
    text = HEAD + "objective: dpo\ndpo: {beta: 0.1}\nlora:\n  alpha: 4\noptimisation:\n  learning_rate: 5e-6\n"
    findings = lint([write(own, "x", text)], [shipped])
    assert {finding.level for finding in findings} == {"warning"}
    assert any("low for LoRA on preferences" in finding.message for finding in findings)
    assert any(isinstance(finding, LintFinding) and "less than the rank" in finding.message for finding in findings)
    assert load_recipe(own / "x.yaml", [shipped]).recipe.objective == "dpo"


def test_a_line_that_several_recipes_inherit_is_said_once_with_their_names(own: Path, shipped: Path) -> None:
    write(own, "common", "extends: pointsav/engineering\nversion: 1\nabstract: true\nlora: {alpha: 4}\n")
    for role in ("crew", "desk", "yard"):
        write(own, role, f"extends: common\nversion: 1\ntenant: acme\nrole: {role}\n")
    (finding,) = [each for each in lint([own], [own, shipped]) if "less than the rank" in each.message]
    assert finding.where.endswith("common.yaml:4")
    assert finding.message.endswith("(in acme/crew, acme/desk, acme/yard)")


@pytest.mark.parametrize(
    ("method", "objective", "rate", "word"),
    [
        ("qlora", "sft", "2e-4", None),
        ("qlora", "sft", "1e-6", "low"),
        ("lora", "sft", "1e-2", "high"),
        ("qlora", "dpo", "1e-4", None),
        ("lora", "simpo", "5e-6", "low"),
        ("qlora", "dpo", "1e-3", "high"),
        ("full", "dpo", "1e-6", None),
        ("full", "dpo", "1e-4", "high"),
        ("full", "sft", "1e-5", None),
    ],
)
def test_rates_are_judged_by_method(
    own: Path, shipped: Path, method: str, objective: str, rate: str, word: str | None
) -> None:
    sections = {"dpo": "dpo: {beta: 0.1}\n", "simpo": "simpo: {beta: 2, gamma: 1}\n", "sft": ""}[objective]
    text = f"{HEAD}method: {method}\nobjective: {objective}\n{sections}optimisation:\n  learning_rate: {rate}\n"
    said = [each.message for each in lint([write(own, "x", text)], [shipped]) if "learning_rate" in each.message]
    assert len(said) == (word is not None) and all(f"is {word}" in message for message in said), said


def test_a_rank_that_the_engine_cannot_serve_is_said(own: Path, shipped: Path) -> None:
    path = write(own, "x", HEAD + "lora:\n  r: 64\n  alpha: 128\n")
    assert any("ranks up to 16, not 64" in each.message for each in lint([path], [shipped], 16))
    assert not any("ranks up to" in each.message for each in lint([path], [shipped], 64))


def test_a_recogniser_that_presidio_does_not_have_is_told_before_the_night(own: Path, shipped: Path) -> None:
    path = write(own, "x", HEAD + "data: {recognizers: [DeTaxIdRecognizer, DeTaxRecognizer]}\n")
    (error,) = (each for each in lint([path], [shipped]) if each.level == "error")
    assert error.where == f"{path}:5" and "Presidio has no 'DeTaxRecognizer'" in error.message


def test_a_role_to_mix_in_that_is_nearly_a_recipes_is_said(own: Path, shipped: Path) -> None:
    write(own, "general", HEAD.replace("role: editor", "role: general"))
    path = write(own, "x", HEAD + "data:\n  mix: {generall: 0.5, notes: 1}\n")
    said = [str(each) for each in lint([own], [shipped]) if "data.mix" in each.message]
    assert said == [f"{path}:6: warning: data.mix: no recipe has the role generall; did you mean general?"]


def test_a_base_that_is_nearly_the_deployments_is_said(own: Path, shipped: Path) -> None:
    path = write(own, "x", HEAD + "base_model:\n  id: HuggingFaceTB/SmolLM-135M-Instruct\n")
    said = lint([path], [shipped], None, ["HuggingFaceTB/SmolLM2-135M-Instruct"])
    assert [(each.where, each.message.partition("; ")[2]) for each in said] == [
        (f"{path}:6", "did you mean HuggingFaceTB/SmolLM2-135M-Instruct?")
    ]
    assert lint([path], [shipped], None, ["acme/other"]) == []


def test_a_model_that_cannot_be_had_is_named_with_its_neighbour(
    tmp_path: Path, embedded: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ServiceError, match=r"SmolLM-135M.*cannot be downloaded.*did you mean HuggingFaceTB/SmolLM2"):
        prepare_model("HuggingFaceTB/SmolLM-135M-Instruct", "main", embedded.models, tmp_path)


def test_loading_definitions_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'transformers', 'trl', 'peft', 'datasets', 'pyarrow', 'dagster', 'dagster_pipes'}"
    modules = "ec1.recipes.schema, ec1.training.plan, ec1.training.spec, ec1.launch.launcher, ec1.training.monitor"
    code = f"import sys, {modules}; found = {heavy} & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_experiment_stands_beside_the_roles_own_recipe_and_no_night_runs_it(own: Path, shipped: Path) -> None:
    write(own, "x", HEAD)
    write(own, "try", HEAD + "kind: experiment\noptimisation: {learning_rate: 5e-4}\n")
    found, _ = survey([own], [own, shipped])
    assert [(each.recipe.kind, each.recipe.nightly) for each in found] == [("adapter", True), ("experiment", False)]
    assert [finding for finding in lint([own], [own, shipped]) if finding.level == "error"] == []


@pytest.mark.parametrize(
    ("more", "fsdp", "message"),
    [
        ("objective: orpo\norpo: {beta: 0.1}\n", False, "objective orpo is trained by one process"),
        ("objective: dpo\ndpo: {beta: 0.1}\n", True, "gpu.fsdp is for objective sft"),
        ("", True, "gpu.fsdp is for method lora, not qlora"),
        ("optimisation: {batch_size: 3, gradient_accumulation: 1}\n", False, "cannot be shared by 2 processes"),
    ],
)
def test_what_several_processes_cannot_share_is_an_error(
    own: Path, shipped: Path, more: str, fsdp: bool, message: str
) -> None:
    write(own, "x", HEAD + more)
    assert not [finding for finding in lint([own], [shipped]) if finding.level == "error"]
    errors = [finding for finding in lint([own], [shipped], processes=2, fsdp=fsdp) if finding.level == "error"]
    assert len(errors) == 1 and message in errors[0].message and "x.yaml" in errors[0].where
