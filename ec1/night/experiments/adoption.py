"""A training that was made elsewhere joins this home: verified, evaluated here, judged by the gate, and published or
put in quarantine, as one of a night.

A cluster's job trains with `ec1 train` and a home of its own; what it left is brought here. The verdict is the one that
the training would have had at home: the same held-out rows, the same base and incumbent, the same gate. Belongs here:
what has to be true of what arrives. Does not: how it is scored (`by_hand.py`) and placed (`settlement.py`).
"""

import datetime as dt
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ec1.adapters.manifest import ADAPTER_FILES
from ec1.corpus.dataset import Dataset, load_dataset
from ec1.corpus.snapshots import load_snapshot
from ec1.corpus.threshold import HighWaterMark
from ec1.deployment import Deployment
from ec1.errors import InputError, PermanentError
from ec1.files import staged_directory, write_json
from ec1.home import Home
from ec1.launch.untrusted import json_object
from ec1.night.experiments.by_hand import check_evaluable, score_by_hand
from ec1.night.records import EvaluationRecord, OutcomeRecord, Records
from ec1.night.steps.candidate import BY_HAND, EVALUATION_FOLDER, TrainedCandidate, evaluated_files, judged_in
from ec1.night.steps.recipe_night import RecipeNight
from ec1.night.steps.settlement import manifest_of, place
from ec1.night.stores import open_store
from ec1.recipes.resolution import ResolvedRecipe
from ec1.storage.settings import DirectoryStoreSettings
from ec1.training.provenance import LOCK
from ec1.training.spec import ADAPTER, METRICS, RUN, SUMMARY, TrainingResult, TrainingSpec, check_result, read_result

ADOPTED = "adopted"
_NAMES = (SUMMARY, METRICS, RUN, LOCK, *(f"{ADAPTER}/{name}" for name in ADAPTER_FILES))
"""All that is taken of what a training left, so nothing else that lies there can do anything here."""


@contextmanager
def brought(source: str, deployment: Deployment, home: Home) -> Iterator[Path]:
    """A folder with what a training left: a run of this home (`ec1 run list`), a folder (also as file:// address), or a
    prefix in the deployment's store (`store:PREFIX`, or its `gs://` or `s3://` address). Raises InputError.
    """
    own = home.runs / source
    folder = Path(source.removeprefix("file://")).expanduser()
    if own.resolve().is_relative_to(home.runs.resolve()) and (own / SUMMARY).is_file():
        yield own
    elif folder.is_dir():
        yield folder
    elif (prefix := _prefix(source, deployment)) is None:
        raise InputError(f"{source} is neither a run of this home nor a folder, nor in the deployment's store")
    else:
        store = open_store(deployment.store, home)
        with tempfile.TemporaryDirectory(prefix="ec1-adopt-") as scratch:
            here = {item.key.removeprefix(f"{prefix}/") for item in store.list(f"{prefix}/")}
            if SUMMARY not in here:
                raise InputError(f"{source} holds no {SUMMARY}: is it the folder that a training left?")
            for name in sorted(here & set(_NAMES)):
                store.get_file(f"{prefix}/{name}", Path(scratch) / name)
            yield Path(scratch)


def _prefix(source: str, deployment: Deployment) -> str | None:
    """The prefix in the deployment's store that an address names; None if it names nothing there."""
    scheme, _, rest = source.partition(":")
    if scheme == "store":
        return rest.strip("/")
    bucket, _, prefix = rest.removeprefix("//").partition("/")
    store = deployment.store
    if isinstance(store, DirectoryStoreSettings) or scheme not in ("gs", "s3"):
        return None
    mine = {"gs": "gcs", "s3": "s3"}[scheme] == store.kind and getattr(store, "bucket", None) == bucket
    return prefix.strip("/") if mine and prefix else None


def recipe_in(folder: Path) -> str:
    """The name of the recipe that trained there. Raises InputError if no training ended there."""
    return _result(folder).recipe


def adopt(
    folder: Path,
    resolved: ResolvedRecipe,
    deployment: Deployment,
    home: Home,
    now: dt.datetime,
    env: Mapping[str, str],
    log: Path,
) -> OutcomeRecord:
    """Verify what a training left in `folder`, score it on this home's held-out rows, and settle it by the gate's
    verdict. The same training is the same version, however often it is adopted.

    Raises InputError for one of another recipe, dataset, base or start, or that has not finished; PermanentError for an
    adapter that cannot be served or changes nothing.
    """
    check_evaluable(resolved)
    if not resolved.recipe.nightly:
        raise InputError(f"recipe {resolved.recipe.name} is of kind {resolved.recipe.kind}: nothing of it is published")
    step = RecipeNight(resolved, deployment, home, deployment.current_night(now))
    result = _result(folder)
    dataset = _verified(step, result, now)
    spec = step.spec(dataset, seed=result.seed)
    if spec.identity != result.identity:
        raise InputError(
            f"{folder} started from {result.start_adapter or 'no adapter'}, and here this recipe starts from "
            f"{spec.start_adapter.name if spec.start_adapter else 'none'}: it is another training"
        )
    earlier = sorted(step.folder.parent.glob(f"*/{BY_HAND}/{spec.identity[:12]}"))
    place_of_it = earlier[-1] if earlier else step.folder / BY_HAND / spec.identity[:12]
    spec = spec.model_copy(update={"output": place_of_it})
    _take(folder, spec)
    candidate = TrainedCandidate(spec.output, check_result(spec))
    if problems := candidate.problems():
        raise PermanentError(f"{folder} is not adopted: {'; '.join(problems)}")
    records, evaluation = Records(spec.output), spec.output / EVALUATION_FOLDER
    if records.find(EvaluationRecord) is None:
        judged = score_by_hand(step, dataset, spec, env, log, "ec1 adopt")
    else:
        judged = judged_in(evaluation, step.recipe.evaluation)
    snapshot = load_snapshot(home, step.bucket.name, dataset.snapshot)
    base, inherited = step.base_model_ref, step.labels_learnt_by(candidate.result.start_adapter)
    manifest = manifest_of(resolved, step.night.date, base, snapshot, dataset, candidate, judged, inherited)
    attachments = {METRICS: candidate.metrics, **evaluated_files(evaluation)}
    outcome = place(step.registry, candidate, manifest, judged, attachments)
    # The next night does not train on the same tuples again.
    mark = HighWaterMark(home, step.recipe.tenant, step.recipe.role)
    mark.advance(snapshot.digest, step.night.date, ADOPTED, resolved.digest)
    records.write(ADOPTED, outcome)
    return outcome


def _result(folder: Path) -> TrainingResult:
    try:
        result = read_result(folder)
    except PermanentError as error:
        raise InputError(str(error).rpartition(": ")[0]) from None
    if result is None:
        raise InputError(f"{folder} holds no {SUMMARY}: is it the folder that a training left?")
    return result


def _verified(step: RecipeNight, result: TrainingResult, now: dt.datetime) -> Dataset:
    """The dataset here of the training, after the training was held against this home. Raises InputError."""
    recipe, base = step.recipe, step.recipe.base_model
    if result.status != "finished" or result.weights != ADAPTER:
        left = result.weights or "nothing"
        raise InputError(f"the training ended as {result.status} and left {left}: only a finished adapter is adopted")
    if result.recipe_digest != step.resolved.digest:
        raise InputError(
            f"it was trained by recipe {result.recipe} {result.recipe_digest[:12]}, and here {recipe.name} is "
            f"{step.resolved.digest[:12]}: bring the recipes to the same state"
        )
    if (result.base_model, result.base_revision) != (base.id, base.revision):
        raise InputError(
            f"it was trained on {result.base_model} ({result.base_revision}), not on {base.id} ({base.revision})"
        )
    if (step.home.datasets / result.dataset_digest).is_dir():
        dataset = load_dataset(step.home, result.dataset_digest)
        if dataset.within is not None:
            raise InputError(
                "it was trained in a sweep, on a part of the training side, and chosen on the rest of it: train the "
                f"recipe on the whole (`ec1 train {recipe.name} --evaluate`), and adopt that"
            )
        return dataset
    dataset = step.dataset(step.snapshot(now))
    if dataset.digest != result.dataset_digest:
        raise InputError(
            f"it was trained on dataset {result.dataset_digest[:12]}, and the corpus here makes {dataset.digest[:12]}: "
            "what is held out here may have been learnt there; bring the corpus to the same state"
        )
    return dataset


def _take(folder: Path, spec: TrainingSpec) -> None:
    """Bring what is needed into this home's folder of the training, if it is not there. Raises InputError."""
    if (spec.output / SUMMARY).is_file():
        return
    with staged_directory(spec.output) as staging:
        for name in _NAMES:
            source = folder / name
            if source.is_symlink() or source.parent.is_symlink():
                raise InputError(f"{source} is a link: give the folder that it leads to")
            if source.is_file():
                (staging / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, staging / name)
        run = staging / RUN
        told = json_object(run.read_bytes(), str(folder / RUN)) if run.is_file() else {}
        # Its paths are those of this home: it can be repeated here.
        write_json(run, {**told, "identity": spec.identity, "spec": spec.model_dump(mode="json"), ADOPTED: str(folder)})
