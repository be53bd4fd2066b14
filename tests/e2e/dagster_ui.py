"""`ec1 ui` with its daemon, and its GraphQL: what a person clicks is a request to that."""

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from typing import Any

from commandline import wait_for_ui
from light import LightCommandLine
from loopback_server import free_port

RUNS = """{ runsOrError(filter: {pipelineName: "nightly_job"}) { ... on Runs { results {
    runId status runConfigYaml assetSelection { path } hasReExecutePermission parentRunId pipelineSnapshotId
    repositoryOrigin { repositoryName repositoryLocationName } tags { key value } } } } }"""
REPORT = """{ assetOrError(assetKey: {path: ["night_report"]}) { ... on Asset {
    assetMaterializations(limit: 5) { runId partition } } } }"""


class Ui:
    """`ec1 ui` in a separate process group, and its GraphQL."""

    def __init__(self, ec1: LightCommandLine) -> None:
        self.port = free_port()
        self.process = subprocess.Popen(
            [*ec1.command, "ui", "--port", str(self.port)],
            cwd=ec1.project,
            env=ec1.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_for_ui(self.process, self.port)

    def ask(self, query: str, variables: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/graphql",
            json.dumps({"query": query, "variables": variables or {}}).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode(errors="replace")) from None

    def runs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask(RUNS)["runsOrError"]["results"]
        return found

    def reports(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask(REPORT)["assetOrError"]["assetMaterializations"]
        return found

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
