"""The chosen deployment as a Dagster resource; every other resource starts from it."""

import datetime as dt
import os
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from ec1.deployment import Deployment, load_deployment
from ec1.gpu.lease import VISIBLE
from ec1.home import Home
from ec1.night.health.storage_health import recording
from ec1.night.operations.sample import install_sample
from ec1.night.report.first import begin
from resources.environment import DeploymentChoice

if TYPE_CHECKING:
    from ec1.machines.machine import Machine


class ProjectResource(dg.ConfigurableResource["ProjectResource"]):
    """Typed settings in, domain objects out. Holds no state: YAML is read again by each process that needs it.

    A home that is still empty gets the deployment's sample, if it names one, however the run was started.
    """

    deployment_name: str
    home_path: str
    project_root: str

    @classmethod
    def of(cls, choice: DeploymentChoice) -> "ProjectResource":
        return cls(deployment_name=choice.deployment, home_path=str(choice.home), project_root=str(choice.project))

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        self.home.create()
        recording(self.home)
        deployment = self.deployment()
        begin(deployment, self.home, dt.datetime.now(dt.UTC))
        if deployment.sample is not None:
            install_sample(deployment.sample, self.home)

    @property
    def home(self) -> Home:
        return Home(Path(self.home_path))

    def machine(self) -> "Machine | None":
        """The GPU machine that is booted for nights, if the deployment has one."""
        from ec1.night.machines import machine_of

        return machine_of(self.deployment(), self.home)

    def seconds_left(self) -> float | None:
        """How long a booted machine may still run; None where none does."""
        machine = self.machine()
        return None if machine is None else machine.seconds_left()

    def seconds_to_have(self) -> float | None:
        """How long a booted machine may still run, or could if it were booted now, or the cards of a training elsewhere
        may be used; None where there is no bound."""
        from ec1.night.card_book import card_book

        machine, deployment = self.machine(), self.deployment()
        if machine is not None:
            return machine.seconds_to_have()
        book = card_book(deployment, self.home)
        return None if book is None else book.seconds_to_have(deployment.gpu.processes)

    def recipe_names(self) -> list[tuple[str, str]]:
        """(tenant, role) of each recipe that nights run."""
        from ec1.night.steps.recipes import nightly_recipes

        found = nightly_recipes(self.deployment(), Path(self.project_root))
        return [(each.recipe.tenant, each.recipe.role) for each in found]

    def deployment(self) -> Deployment:
        deployment = load_deployment(self.deployment_name, Path(self.project_root))
        return deployment.on_cards(os.environ.get(VISIBLE))
