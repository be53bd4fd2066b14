"""Where phase 1's answers come from, as a Dagster resource: an engine that we start and stop."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import dagster as dg

from ec1.extraction.settings import DoormanSettings, ServerSettings
from ec1.gpu.settings import VllmSettings
from ec1.models import prepare_model, prepare_tokenizer
from ec1.night.steps.budgets import extraction_seconds
from resources.environment import child_environment
from resources.gpu import GpuResource
from resources.project import ProjectResource

if TYPE_CHECKING:
    from ec1.extraction.reading.client import ChatClient
    from ec1.gpu.engine import VllmEngine
    from ec1.machines.machine import Machine


class InferenceResource(dg.ConfigurableResource["InferenceResource"]):
    """Boots nothing until a model is served; a night without new documents never asks for one."""

    project: dg.ResourceDependency[ProjectResource]
    gpu: dg.ResourceDependency[GpuResource]

    def deadline(self) -> float:
        """The end of phase 1's budget if its clock starts now, in `time.monotonic` seconds."""
        budgets = self.project.deployment().budgets
        return time.monotonic() + extraction_seconds(budgets, self.project.seconds_left())

    @contextmanager
    def serve(self, context: dg.AssetExecutionContext) -> "Iterator[ChatClient]":
        """Serve the deployment's model and yield a client of it. An engine of our own holds the GPU while it serves."""
        from ec1.extraction.reading.client import Circuit
        from ec1.extraction.reading.openai import OpenAIClient
        from ec1.extraction.reading.several import server_client
        from ec1.night.steps.extractor import adapter_of, engine_of

        deployment, home = self.project.deployment(), self.project.home
        model = deployment.inference
        # Who answers elsewhere has the weights; what is read is counted here.
        prepare = prepare_tokenizer if deployment.own_engine is None else prepare_model
        folder = prepare(model.model, model.revision, deployment.models, home.models)
        if isinstance(model, ServerSettings):
            yield server_client(model, deployment.extraction)
            return
        if isinstance(model, DoormanSettings):
            from ec1.extraction.reading.doorman import DoormanClient, wait_until_ready

            wait_until_ready(model, context.log.info)
            yield DoormanClient(model, deployment.extraction_module_id, deployment.extraction)
            return
        if (machine := self.project.machine()) is not None:
            with self._on_machine(context, machine, model) as client:
                yield client
            return
        adapter = adapter_of(deployment, home)
        engine = engine_of(deployment, home, folder, adapter)
        if model.cluster is not None:
            with self._on_cluster(context, engine) as client:
                yield client
            return
        # The engine is gone before the lease is.
        with (
            self.gpu.hold(context, "inference") as grant,
            engine.serve(
                grant,
                log=home.logs / f"inference-{context.partition_key}.log",
                progress=context.log.info,
                environment=child_environment(),
            ) as endpoint,
        ):
            # Nobody starts our engine again if it dies, so it is given up after seconds; the documents wait.
            circuit = Circuit(cool_down_seconds=1.0, rounds=3)
            yield OpenAIClient(
                endpoint.base_url,
                endpoint.model,
                deployment.extraction,
                circuit=circuit,
                died=endpoint.died,
                answers_as=(),
                ends_repetition=adapter is not None,
            )

    @contextmanager
    def _on_cluster(self, context: dg.AssetExecutionContext, engine: "VllmEngine") -> "Iterator[ChatClient]":
        """Serve on the nodes of a Ray cluster; engines that come later, or again, are asked from then on."""
        from ec1.extraction.reading.client import Circuit
        from ec1.extraction.reading.openai import OpenAIClient
        from ec1.extraction.reading.several import PATIENCE_SECONDS, Servers, SeveralClients
        from ec1.gpu.cluster_engines import engines_on_cluster

        deployment, home, cluster = self.project.deployment(), self.project.home, engine.settings.cluster
        assert cluster is not None
        with (
            self.gpu.elsewhere(
                context,
                "the extraction",
                cards=cluster.engines,
                at_most=extraction_seconds(deployment.budgets, self.project.seconds_left()),
            ) as using,
            engines_on_cluster(
                engine,
                deployment.gpu,
                folder=home.night(context.partition_key) / "engines",
                store=deployment.store,
                logs=home.logs / f"inference-{context.partition_key}",
                wait_seconds=deployment.budgets.lease_wait_seconds,
                progress=context.log.info,
                held=using.counts,
            ) as engines,
        ):

            def client_of(address: str, circuit: Circuit) -> OpenAIClient:
                return OpenAIClient(
                    address,
                    engine.served_as,
                    deployment.extraction,
                    circuit=circuit,
                    api_key=engines.key,
                    answers_as=(),
                    ends_repetition=engine.adapter is not None,
                )

            servers = Servers(engines.addresses, client_of, deployment.extraction.max_attempts)
            yield SeveralClients(servers, PATIENCE_SECONDS)

    @contextmanager
    def _on_machine(
        self, context: dg.AssetExecutionContext, machine: "Machine", model: VllmSettings
    ) -> "Iterator[ChatClient]":
        """Boot the deployment's machine and run the engine there."""
        from ec1.extraction.reading.client import Circuit
        from ec1.extraction.reading.openai import OpenAIClient
        from ec1.night.machines import engine_arguments

        deployment = self.project.deployment()
        # Phase 2 may need it, which the handover knows.
        keep = deployment.trains_on_machine
        with (
            self.gpu.hold(context, "inference"),
            machine.up("inference", context.partition_key, keep=keep, progress=context.log.info) as running,
            running.engine(engine_arguments(deployment), model.model, context.log.info) as endpoint,
        ):
            yield OpenAIClient(
                endpoint.base_url,
                endpoint.model,
                deployment.extraction,
                circuit=Circuit(cool_down_seconds=1.0),
                died=endpoint.died,
                api_key=endpoint.api_key,
                answers_as=(),
            )
