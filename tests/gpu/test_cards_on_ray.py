"""The card that Ray gives a work is the one that NVML is asked about, that is leased, and all that the work sees.

Ray is real and believes in eight cards; NVML is fake, and tells that card 0 is somebody else's.
"""

import sys
import threading
from pathlib import Path

import pytest
from eight_cards import EightCards
from light_work import LightSpec

from ec1.files import write_json
from ec1.launch.ray_jobs import RayNeed
from ec1.launch.ray_launcher import RayOrder

pytestmark = pytest.mark.slow
pytest.importorskip("ray", reason="run `make install`")


def order_in(folder: Path, lock_dir: Path) -> RayOrder:
    (folder / "source").mkdir(parents=True)
    specification = folder / "light.json"
    spec = LightSpec(source=folder / "source", output=folder / "output", seconds=0.3)
    write_json(specification, spec.model_dump(mode="json"))
    return RayOrder(
        what="the light work",
        module="light_work",
        specification=specification,
        device="cuda",
        environment={},
        log=folder / "log",
        messages=folder / "messages",
        result=folder / "result.json",
        lock_dir=lock_dir,
        min_free_gib=20,
        wait_seconds=120,
        retries=0,
        need=RayNeed(what="the light work", resources={"CPU": 0, "GPU": 1, "memory": 0}),
        begun=folder / "begun",
    )


@pytest.mark.skipif(" " in sys.executable, reason="Ray 2.60 does not quote the path of a worker's Python")
def test_each_work_has_the_card_that_ray_gave_it(
    eight: EightCards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Or Ray keeps a token in the home of whoever runs the tests.
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    import ray

    from ec1.gpu import ray_job

    eight.tell(0, used=23, pids=[4711])
    (tmp_path / "locks").mkdir()
    orders = [order_in(tmp_path / f"work-{number}", tmp_path / "locks") for number in range(3)]
    environment = {"env_vars": {key: value for key, value in eight.environment.items() if key != "PATH"}}
    ray.init(num_gpus=8, num_cpus=4, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    try:
        task = ray.remote(ray_job.on_a_node).options(**orders[0].need.options)
        waiting = [task.remote(order.model_dump(mode="json")) for order in orders]
        done, waiting = ray.wait(waiting, num_returns=2, timeout=120)
        ray.get(done)
        assert len(waiting) == 1, "the one that got card 0 waits for it"
        assert not ray.wait(waiting, timeout=2)[0]
        threading.Timer(0.1, lambda: eight.tell(0)).start()
        ray.get(waiting, timeout=120)
    finally:
        ray.shutdown()
    seen = {(order.specification.parent / "output" / "card.txt").read_text() for order in orders}
    assert seen == {eight.uuid(index) for index in range(3)}
    locks = {path.name for path in (tmp_path / "locks").glob("*.lock")}
    assert locks == {"ec1-gpu.lock", "ec1-gpu-1.lock", "ec1-gpu-2.lock"}, "those of any home on this machine"
