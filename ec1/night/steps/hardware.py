"""The machine that a training is planned on: the deployment's own, or another card.

Belongs here: what of a deployment, the table of cards and the log book goes into the plan's `HardwareFigures`. Does
not: the plan (`ec1.training.plan`), and how much of a card trainings reached (`learned.py`).
"""

from ec1.deployment import Deployment
from ec1.gpu.cards import card_of, read_card
from ec1.home import Home
from ec1.launch.device import GpuSettings
from ec1.launch.launcher import LocalLauncherSettings
from ec1.night.steps.learned import efficiency
from ec1.training.cards import CardSheet, find_card, without_sheet
from ec1.training.plan import HardwareFigures


def gpu_of(deployment: Deployment) -> GpuSettings:
    """The deployment's device. Where it trains here: on a CPU with no more memory than a container leaves of it, and
    with the name and memory of the card here if it names none."""
    gpu = deployment.gpu
    if deployment.machine is not None or not isinstance(deployment.launcher, LocalLauncherSettings):
        return gpu
    if gpu.device == "cpu":
        return gpu.model_copy(update={"memory_gib": min(gpu.memory_gib, round(read_card("cpu").total_gib, 1))})
    if {"name", "memory_gib"} & gpu.model_fields_set:
        return gpu
    if (card := card_of(gpu)) is None:
        return gpu
    return gpu.model_copy(update={"name": card.name, "memory_gib": round(card.total_gib, 1)})


def hardware_of(home: Home, gpu: GpuSettings) -> HardwareFigures:
    """The deployment's machine. What trainings reached on it counts before `gpu.tokens_per_second`, and that, where
    somebody has set it, before the data sheet."""
    card = find_card(gpu.name) if gpu.device == "cuda" else None
    figures = HardwareFigures(
        name=gpu.name,
        device=gpu.device,
        memory_gib=gpu.memory_gib,
        tokens_per_second=gpu.tokens_per_second,
        cost_per_hour=gpu.cost_per_hour,
        processes=gpu.processes,
        fsdp=gpu.fsdp,
    )
    measured = efficiency(home, gpu, card or without_sheet(gpu.name, gpu.memory_gib))
    if measured is not None:
        known = {"efficiency": measured.share, "efficiency_from": measured.trainings}
        return figures.model_copy(update={"card": card or without_sheet(gpu.name, gpu.memory_gib), **known})
    if card is None or "tokens_per_second" in gpu.model_fields_set:
        return figures
    return figures.model_copy(update={"card": card})


def hardware_with(home: Home, gpu: GpuSettings, card: CardSheet) -> HardwareFigures:
    """One other card, used as well as trainings used the deployment's own, if that has a data sheet too."""
    own = find_card(gpu.name) if gpu.device == "cuda" else None
    measured = None if own is None else efficiency(home, gpu, own)
    figures = HardwareFigures(
        name=card.name,
        device="cuda",
        memory_gib=card.usable_gib,
        tokens_per_second=gpu.tokens_per_second,
        card=card,
    )
    if measured is None:
        return figures
    return figures.model_copy(update={"efficiency": measured.share, "efficiency_from": measured.trainings})
