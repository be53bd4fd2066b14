"""How an engine of vLLM finds an adapter by its name: a LoRA resolver that asks the registry, and only it.

vLLM calls `register` (entry point `vllm.general_plugins`) in each of its processes and gives it no argument, so what it
needs comes in one environment variable, `EC1_ADAPTERS`, which `ec1 serve` sets; without it nothing is registered.
vLLM's own `lora_filesystem_resolver` is never used: it follows `..` in a name and checks nothing of what it finds.
https://docs.vllm.ai/en/stable/design/lora_resolver_plugins.html
"""

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from ec1.adapters.registry import AdapterRegistry
from ec1.errors import EC1Error, InputError, ServiceError
from ec1.home import Home
from ec1.night.stores import open_store
from ec1.serving.steps import folder_of, parse_step
from ec1.serving.versions import parse_name
from ec1.settings import Settings
from ec1.storage.settings import DirectoryStoreSettings, StoreSettings

VARIABLE = "EC1_ADAPTERS"
PLUGIN = "ec1_adapters"
"""The entry point's name: `VLLM_PLUGINS=ec1_adapters` keeps vLLM's own resolvers out."""

log = logging.getLogger("vllm.ec1_adapters")


class ResolverSettings(Settings):
    """What `EC1_ADAPTERS` holds, as JSON. `base_model` is the id of the model that the engine serves."""

    store: StoreSettings = DirectoryStoreSettings()
    home: Path = Field(description="of the store, if it is a directory, and of this machine's copies")
    base_model: str
    training_steps: bool = Field(False, description="whether copies that trainings kept on their way can be asked, too")

    def environment(self) -> dict[str, str]:
        """What an engine's environment needs, so that it resolves adapters by this registry and nothing else."""
        return {
            VARIABLE: self.model_dump_json(),
            "VLLM_PLUGINS": PLUGIN,
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
        }


def checked_folder(registry: AdapterRegistry, base_model: str, name: str, runs: Path | None = None) -> Path:
    """The folder of the version `tenant/role@vN`, checked against its manifest; with `runs`, the folder of the log
    book, also that of a copy that a training kept.

    Raises InputError for any other name, an unknown or withdrawn version or one of another base model;
    PermanentError for a damaged one.
    """
    if runs is not None and (copy := parse_step(name)) is not None:
        return folder_of(runs, base_model, copy)
    parsed = parse_name(name)
    if parsed is None or parsed[2] is None:
        raise InputError(f"{name[:200]!r} is not a version: ask for tenant/role@vN")
    tenant, role, version = parsed[0], parsed[1], parsed[2]
    manifest = registry.get(tenant, role, version)
    if withdrawn := registry.withdrawal(tenant, role, version):
        raise InputError(f"{name} was withdrawn: {withdrawn.reason}")
    if manifest.base_model.id != base_model:
        raise InputError(f"{name} belongs to {manifest.base_model.id}, this engine serves {base_model}")
    return registry.fetch(tenant, role, version).resolve()


def register() -> None:
    """Register the resolver with vLLM, if `EC1_ADAPTERS` says for what. Raises InputError if it is not understood."""
    text = os.environ.get(VARIABLE)
    if not text:
        return
    from vllm.lora.request import LoRARequest
    from vllm.lora.resolver import LoRAResolver, LoRAResolverRegistry

    try:
        settings = ResolverSettings.model_validate_json(text)
    except ValidationError as error:
        raise InputError(f"{VARIABLE} is not understood: {error.errors()[0]['msg']}; see docs/serving.md") from None
    home = Home(settings.home)
    registry = AdapterRegistry(open_store(settings.store, home), home.adapters)
    runs = home.runs if settings.training_steps else None

    class RegistryResolver(LoRAResolver):  # type: ignore[misc]
        async def resolve_lora(self, base_model_name: str, lora_name: str) -> Any:
            # `base_model_name` is the folder of the engine's weights, which says nothing about the model's id.
            try:
                folder = await asyncio.to_thread(checked_folder, registry, settings.base_model, lora_name, runs)
            except ServiceError:
                # The store is away: that the adapter does not exist would be a lie.
                raise
            except EC1Error as error:
                log.warning("%s", error)
                return None
            # The engine puts its own number in place of this one.
            return LoRARequest(
                lora_name=lora_name, lora_int_id=1, lora_path=str(folder), base_model_name=settings.base_model
            )

    LoRAResolverRegistry.register_resolver(PLUGIN, RegistryResolver())
