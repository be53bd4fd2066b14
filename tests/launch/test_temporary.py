"""A job's temporary folder with a long name, as clusters give it, does not keep anything from its sockets."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ec1.gpu.engine import VllmEngine
from ec1.gpu.settings import VllmSettings
from ec1.launch.temporary import temporary_folder

FORK_SERVER = "from multiprocessing import forkserver; forkserver.ensure_running()"


@contextlib.contextmanager
def temporary_folder_of(length: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as short, monkeypatch.context() as patch:
        folder = Path(short) / ("x" * (length - len(f"{short}/")))
        folder.mkdir()
        patch.setattr(tempfile, "tempdir", str(folder))
        try:
            yield folder
        finally:
            for link in Path("/tmp").glob(f"ec1-{os.getuid()}-*"):
                if link.is_symlink() and link.readlink() == folder:
                    link.unlink()


@pytest.mark.parametrize("length", [40, 57, 58, 70, 200])
def test_sockets_are_made_in_it(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with temporary_folder_of(length, monkeypatch) as folder:
        found = temporary_folder()
        assert found == temporary_folder() and Path(found).samefile(folder)
        assert (found == str(folder)) == (length <= 57)
        wardens = tempfile.mkdtemp(prefix="ec1-", dir=found)
        with socket.socket(socket.AF_UNIX) as as_vllm_names_it:
            as_vllm_names_it.bind(f"{wardens}/{uuid.uuid4()}")
        subprocess.run([sys.executable, "-c", FORK_SERVER], env={**os.environ, "TMPDIR": found}, check=True)
        settings = VllmSettings(kind="vllm", model="m/m", max_model_len=512)
        assert VllmEngine(settings, folder, "m/m", "cuda").environment({"TMPDIR": str(folder)})["TMPDIR"] == found


def test_a_link_of_that_name_that_leads_elsewhere_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with temporary_folder_of(90, monkeypatch) as folder:
        link = Path(temporary_folder())
        link.unlink()
        link.symlink_to("/")
        try:
            assert temporary_folder() == str(folder)
        finally:
            link.unlink()
