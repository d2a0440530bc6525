"""Apps are deployed, found and called; each call runs in a container made for it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from secrets import token_hex
from typing import Any

import modal
import pytest

from .standing import Stand


def test_remote(stand: Stand) -> None:
    [add] = stand.deploy("add")
    assert add.remote(2, 3) == 5


def test_generator(stand: Stand) -> None:
    [count] = stand.deploy("count")
    call_id, *numbers = count.remote_gen(3)
    [container] = stand.service.containers
    assert numbers == [f"{container.id} {number}" for number in range(3)]
    assert stand.service.calls[0].id == call_id
    assert container.frames == 4
    assert b"counting to 3" in container.log


def test_a_container_stays_warm(stand: Stand) -> None:
    add, count = stand.deploy("add", "count")
    assert add.remote(1, 1) + add.remote(2, 2) == 6
    list(count.remote_gen(1))
    assert [len(each.inputs) for each in stand.service.containers] == [2, 1]


def test_plain_payloads(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODAL_PAYLOAD_FORMAT", "cbor")
    [count] = stand.deploy("count")
    assert len(list(count.remote_gen(2))) == 3
    formats = {chunk.data_format for chunk in stand.service.calls[0].chunks}
    assert formats == {4}  # DATA_FORMAT_CBOR


def test_options_make_a_pool_of_their_own(stand: Stand) -> None:
    [where] = stand.deploy("surroundings", gpu="T4")
    two = where.with_options(gpu="a100:2", timeout=60, max_containers=1)
    assert where.remote()["pid"] != two.remote()["pid"]
    assert two.remote()["environ"]["PYTEST_REMOTEGPU_PRETEND_GPUS"] == "2"
    assert [each.gpu for each in stand.service.containers] == ["T4:1", "A100:2"]
    assert stand.service.containers[1].definition.timeout_secs == 60
    assert [deploy.changed for deploy in stand.service.deploys] == [True]


def test_the_same_options_find_the_same_container(stand: Stand) -> None:
    [where] = stand.deploy("surroundings")
    first, second = (where.with_options(gpu="H100").remote()["pid"] for _ in range(2))
    assert first == second


def test_a_type_out_of_several(stand: Stand) -> None:
    stand.service.faults.no_capacity = {"H100"}
    [add] = stand.deploy("add", gpu=["H100", "A100-80GB"])
    assert add.remote(1, 2) == 3
    assert [each.gpu for each in stand.service.containers] == ["A100-80GB:1"]


def test_nothing_changed_is_no_deployment(stand: Stand) -> None:
    stand.deploy("add")
    stand.deploy("add")
    stand.deploy("add", timeout=77)
    assert [deploy.changed for deploy in stand.service.deploys] == [True, False, True]


def test_a_new_deployment_is_what_new_containers_run(stand: Stand) -> None:
    [where] = stand.deploy("surroundings", env={"ROUND": "1"}, scaledown_window=2)
    assert where.remote()["environ"]["ROUND"] == "1"
    stand.service.lose(stand.service.containers[0])
    stand.service.wait_until(lambda: not stand.service.running)
    [where] = stand.deploy("surroundings", env={"ROUND": "2"}, scaledown_window=2)
    assert where.remote()["environ"]["ROUND"] == "2"


def test_several_containers(stand: Stand) -> None:
    [nap] = stand.deploy("nap", max_containers=2)
    seen = list(nap.map([0.3] * 5))
    assert len(stand.service.containers) == 2
    assert set(seen) == {each.id for each in stand.service.containers}
    assert all(len(each.inputs) >= 1 for each in stand.service.containers)


def test_spawn_and_its_call(stand: Stand) -> None:
    [add] = stand.deploy("add")
    call = add.spawn(20, 22)
    assert modal.FunctionCall.from_id(call.object_id, client=stand.client).get(timeout=20) == 42


def test_an_exception_comes_back(stand: Stand) -> None:
    [fail] = stand.deploy("fail")
    with pytest.raises(ValueError, match="of its own"):
        fail.remote("of its own")


def test_large_payloads_travel_as_blobs(stand: Stand) -> None:
    echo, big = stand.deploy("echo", "big")
    data = os.urandom(5 << 20)
    assert echo.remote(data) == data
    assert list(big.remote_gen(3 << 20)) == [b"x" * (3 << 20)]
    assert sorted(len(blob) >> 20 for blob in stand.service.world.blobs.values()) == [3, 5, 5]


def test_a_queue_both_ways(stand: Stand) -> None:
    queue = modal.Queue.from_name("both", create_if_missing=True, client=stand.client)
    [talk] = stand.deploy("talk")
    call = talk.spawn("both")
    queue.put_many([1, 2, 3])
    assert [queue.get(partition="back", timeout=20) for _ in range(3)] == [2, 4, 6]
    queue.put(None)
    assert call.get(timeout=20) == 3
    assert queue.len(total=True) == 0


def test_a_dict_is_a_claim(stand: Stand) -> None:
    claims = modal.Dict.from_name("claims", create_if_missing=True, client=stand.client)
    assert claims.put("run", "first", skip_if_exists=True)
    assert not claims.put("run", "second", skip_if_exists=True)
    assert claims["run"] == "first"
    assert "run" in claims
    assert claims.pop("run") == "first"
    assert claims.get("run") is None
    assert claims.len() == 0


def test_a_name_that_does_not_exist(stand: Stand) -> None:
    with pytest.raises(modal.exception.NotFoundError, match="App 'far' not found"):
        modal.Function.from_name("far", "add", client=stand.client).remote(1, 1)
    with pytest.raises(modal.exception.NotFoundError):
        modal.Queue.from_name("none", client=stand.client).len()
    stand.deploy("add")
    with pytest.raises(modal.exception.NotFoundError, match="No function 'sub'"):
        modal.Function.from_name("far", "sub", client=stand.client).remote(1, 1)


def test_surroundings(stand: Stand) -> None:
    canary = f"canary-{token_hex()}"
    stand.service.add_secret("keys", {"API_KEY": canary})
    secret = modal.Secret.from_name("keys", required_keys=["API_KEY"], client=stand.client)
    [where] = stand.deploy("surroundings", secrets=[secret], env={"COLOUR": "blue"})
    seen = where.remote()
    assert seen["environ"]["API_KEY"] == canary
    assert seen["environ"]["COLOUR"] == "blue"
    assert seen["environ"].keys() & {"MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET", "XDG_RUNTIME_DIR"} == (
        set()
    )
    assert seen["cwd"] == seen["environ"]["HOME"] == seen["environ"]["PYTHONPATH"]
    # Its own result aside, the value is where it belongs, and nowhere else.
    places = {
        "/".join(part for part in place.split("/") if "-" not in part and not part.isdigit())
        for place, data in stand.service.everything()
        if canary.encode() in data
    }
    assert places == {"secret", "container/environ", "request/FunctionPutOutputs", "output"}


def test_mounts_are_the_code_that_runs(stand: Stand, tmp_path: Path, monkeypatch: Any) -> None:
    package = tmp_path / "mounted_here"
    package.mkdir()
    (package / "__init__.py").write_text("def answer():\n    return __file__\n")
    monkeypatch.syspath_prepend(tmp_path)
    app = modal.App("mounting")
    image = modal.Image.debian_slim().add_local_python_source("mounted_here")

    import mounted_here  # type: ignore[import-not-found]  # noqa: PLC0415 -- made just above

    app.function(image=image, include_source=False)(mounted_here.answer)
    app.deploy(client=stand.client)
    place = modal.Function.from_name("mounting", "answer", client=stand.client).remote()
    assert place.startswith(str(stand.service.containers[0].root))


def test_a_container_ends_when_it_is_idle(stand: Stand) -> None:
    stand.service.limits.scaledown_scale = 0.1
    [add] = stand.deploy("add", scaledown_window=2)
    add.remote(1, 1)
    begun = time.monotonic()
    stand.service.wait_until(lambda: not stand.service.running)
    assert time.monotonic() - begun > 0.1
    assert stand.service.containers[0].exit == 0
    assert add.remote(1, 1) == 2
    assert len(stand.service.containers) == 2


def test_a_volume(stand: Stand) -> None:
    kept = modal.Volume.from_name("kept", create_if_missing=True, client=stand.client)
    [volume] = stand.deploy("volume", volumes={"/root/data": kept})
    assert volume.remote("first") == ["first"]
    stand.service.retire(stand.service.containers[0])  # which commits
    stand.service.wait_until(lambda: not stand.service.running)
    assert volume.remote("second") == ["first", "second"]
    assert len(stand.service.containers) == 2


def test_a_volume_to_read_only(stand: Stand) -> None:
    kept = modal.Volume.from_name("kept", create_if_missing=True, client=stand.client)
    [volume] = stand.deploy(
        "volume", volumes={"/root/data": kept.with_mount_options(read_only=True)}
    )
    assert volume.remote("") == []
    assert stand.service.containers[0].definition.volume_mounts[0].read_only


def test_files_into_a_volume(stand: Stand, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("one")
    kept = modal.Volume.from_name("kept", create_if_missing=True, client=stand.client)
    with kept.batch_upload() as batch:
        batch.put_file(tmp_path / "one.txt", "/one.txt")
    [volume] = stand.deploy("volume", volumes={"/root/data": kept})
    assert volume.remote("two") == ["one.txt", "two"]


def test_an_unknown_gpu(stand: Stand) -> None:
    [add] = stand.deploy("add")
    with pytest.raises(modal.exception.InvalidError, match=r"'A1000'.*A100-80GB"):
        add.with_options(gpu="A1000").remote(1, 1)
    with pytest.raises(modal.exception.InvalidError, match="'X9'"):
        stand.deploy("add", gpu="X9")
    with pytest.raises(modal.exception.InvalidError, match="Invalid GPU count: 9"):
        add.with_options(gpu="T4:9").remote(1, 1)
