"""Opens the stores that a deployment names."""

from ec1.adapters.registry import AdapterRegistry
from ec1.deployment import Deployment
from ec1.home import Home
from ec1.storage.settings import StoreSettings
from ec1.storage.store import ObjectStore


def open_registry(deployment: Deployment, home: Home) -> AdapterRegistry:
    """The registry in the deployment's store. Raises InputError for an endpoint that may not be used."""
    return AdapterRegistry(open_store(deployment.store, home), home.adapters)


def open_store(settings: StoreSettings, home: Home) -> ObjectStore:
    """The store that a deployment asks for. Raises InputError for an endpoint that may not be used."""
    return settings.open(home.root)
