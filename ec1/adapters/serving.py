"""Serving a published version from a running vLLM, without a restart.

Loading adapters at run time is an administrative interface: the server must be on this machine, the path is the
registry's own, checked copy, and the name carries the version, because the engine caches by name.
https://docs.vllm.ai/en/stable/features/lora.html
"""

from typing import Any

import httpx

from ec1.adapters.registry import AdapterRegistry, vllm_name
from ec1.errors import InputError, PermanentError, ServiceError
from ec1.storage.loopback import checked_loopback

PROBES = (
    "The minutes of the meeting were approved, and the next step is",
    "def add(a, b):\n    return",
)
# Two runs of the same weights agree far better than this.
_SAME_NATS = 1e-4


class AdapterServer:
    """A vLLM at `base_url` (without `/v1`) that was started with LoRA and run-time updating.

    Raises InputError for a server elsewhere. Methods raise ServiceError if the server does not answer as agreed.
    """

    def __init__(self, base_url: str, registry: AdapterRegistry, *, timeout_seconds: float = 300) -> None:
        self._url = checked_loopback(base_url).rstrip("/")
        self._registry = registry
        self._timeout = timeout_seconds

    def loaded(self) -> dict[str, str]:
        """Names of the adapters that the server has -> their folders."""
        return {model["id"]: str(model.get("root")) for model in self._models() if model.get("parent")}

    def load(self, tenant: str, role: str, version: int) -> str:
        """Load a version and return its name, `tenant/role@vN`; does nothing if it is already loaded.

        The server's answers must change: tensors that do not fit are dropped silently, and the base would answer in
        the adapter's name. Raises InputError for a withdrawn version or another base model, PermanentError if the
        answers stay the same or the version is damaged.
        """
        name = vllm_name(tenant, role, version)
        manifest = self._registry.get(tenant, role, version)
        if withdrawn := self._registry.withdrawal(tenant, role, version):
            raise InputError(f"{name} was withdrawn ({withdrawn.reason}): choose another version")
        base = manifest.base_model.id
        if base not in {model["id"] for model in self._models() if not model.get("parent")}:
            raise InputError(f"{name} belongs to {base}, which the server at {self._url} does not serve")
        folder = self._registry.fetch(tenant, role, version).resolve()
        present = self.loaded().get(name)
        if present == str(folder):
            return name
        if present is not None:
            raise InputError(f"the server at {self._url} has another {name}, from {present}: unload it first")
        before = [self._logprobs(base, probe) for probe in PROBES]
        self._post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        after = [self._logprobs(name, probe) for probe in PROBES]
        changes = [
            abs(x - y) for one, other in zip(before, after, strict=True) for x, y in zip(one, other, strict=True)
        ]
        if max(changes) < _SAME_NATS:
            self.unload(tenant, role, version)
            raise PermanentError(f"{name} changes no answer of {base}: the server dropped its tensors; it was unloaded")
        return name

    def unload(self, tenant: str, role: str, version: int) -> None:
        """Unload a version from the server; does nothing if it is not loaded."""
        name = vllm_name(tenant, role, version)
        if name in self.loaded():
            self._post("/v1/unload_lora_adapter", {"lora_name": name})

    def _models(self) -> list[dict[str, Any]]:
        models: list[dict[str, Any]] = self._send("GET", "/v1/models", None).json()["data"]
        return models

    def _logprobs(self, model: str, prompt: str) -> list[float]:
        """Log-probability of each token of the prompt but the first."""
        request = {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        answer = self._post("/v1/completions", request).json()
        try:
            places = answer["choices"][0]["prompt_logprobs"][1:]
            return [next(iter(place.values()))["logprob"] for place in places]
        except (KeyError, IndexError, TypeError, StopIteration):
            raise ServiceError(f"{self._url} gave no log-probabilities of the prompt: is it a vLLM?") from None

    def _post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return self._send("POST", path, body)

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> httpx.Response:
        try:
            # Not through a proxy of the environment: the server is on this machine.
            with httpx.Client(timeout=self._timeout, trust_env=False) as client:
                answer = client.request(method, self._url + path, json=body)
        except httpx.HTTPError as error:
            raise ServiceError(f"{self._url}{path} does not answer: {error or type(error).__name__}") from None
        if answer.status_code == 404 and "lora" in path:
            raise ServiceError(f"{self._url} cannot load adapters: start it with LoRA and run-time updating")
        if answer.is_error:
            raise ServiceError(f"{self._url}{path} answered {answer.status_code}: {answer.text[:300]}")
        return answer
