"""What a library's message about the disk means, asked of the disk."""

import errno
import os
from pathlib import Path

import pytest

from ec1 import refused


@pytest.mark.parametrize(("free", "said"), [(300_000, "the disk is full"), (10**9, "the disk fails")])
def test_an_input_error_on_a_disk_with_next_to_nothing_free_is_a_full_one(
    free: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused, "free_bytes", lambda folder: free)
    found = refused.refuses("(sqlite3.OperationalError) disk I/O error", tmp_path)
    assert found is not None and found.startswith(f"{tmp_path}: {said}")


def test_a_share_that_went_away_is_said_with_the_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(**_: object) -> None:
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    monkeypatch.setattr("tempfile.TemporaryFile", away)
    error = refused.refusal_of(tmp_path)
    assert error is not None and "mount it again" in refused.advice_of(error)
    assert str(tmp_path) in refused.advice_for(error) and "mount it again" in refused.advice_for(error)


def test_a_path_that_is_too_long_is_not_the_disks_refusal(tmp_path: Path) -> None:
    assert refused.refusal_of(tmp_path / ("h" * 300)) is None
    assert refused.free_bytes(tmp_path / ("h" * 300)) > 0
