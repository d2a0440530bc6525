"""What a hook does to an image: recorded as data, refused where it is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.recipe import Image, Recipe, decode, encode, fingerprint, to_plain, why
from pytest_remotegpu.recipe.values import Base, Files, Step, UvProject, Volume


def test_methods_are_recorded_in_order_and_give_a_new_image(tmp_path: Path) -> None:
    image = Image(tmp_path)
    done = image.apt_install("git", ["tree"]).env({"A": "1"})
    done = done.run_commands("make", gpu="T4", secrets=["shared"], force_build=False)
    assert image.steps == ()
    assert done.steps == (
        Step("apt_install", ["git", ["tree"]], {}),
        Step("env", [{"A": "1"}], {}),
        Step("run_commands", ["make"], {"gpu": "T4", "secrets": ["shared"], "force_build": False}),
    )


def test_what_is_copied_counts_by_its_content(tmp_path: Path) -> None:
    names = set()
    for folder, text in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / folder / "in").mkdir(parents=True)
        (tmp_path / folder / "in" / "x.cfg").write_text(text)
        image = Image(tmp_path / folder).add_local_dir("in", "/opt")
        [step] = image.steps
        assert step.args == [str(tmp_path / folder / "in"), "/opt"]
        assert step.kwargs == {"copy": True}
        assert [name for name, _digest in step.files] == ["in/x.cfg"]
        names.add(fingerprint(Recipe(steps=image.steps), {}))
    assert len(names) == 2
    by_name = Image(tmp_path / "a").add_local_file(local_path=Path("in/x.cfg"), remote_path="/x")
    assert by_name.steps[0].args == [str(tmp_path / "a" / "in" / "x.cfg")]
    assert by_name.steps[0].kwargs == {"remote_path": "/x", "copy": True}


def _refused(image: Image, name: str, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(UsageError) as caught:
        getattr(image, name)(*args, **kwargs)
    assert "pytest_remotegpu_modal_image" in str(caught.value)
    return str(caught.value)


def test_what_can_not_be_passed_on_is_refused(tmp_path: Path) -> None:
    image = Image(tmp_path)
    assert "apt_install was given builtin_function" in _refused(image, "apt_install", print)
    assert "by their names" in _refused(image, "run_commands", "x", secrets=[object()])
    assert "was given dict" in _refused(image, "env", {1: "x"})
    assert "'gone', and there is no such file" in _refused(image, "add_local_file", "gone", "/x")
    assert "needs the path" in _refused(image, "add_local_dir")


def test_a_method_that_is_not_recorded_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match=r"can't use 'run_function'.*apt_install.*workdir"):
        Image(tmp_path).run_function(print)


def test_a_step_is_a_reason_and_its_values_are_not_shown(tmp_path: Path) -> None:
    image = Image(tmp_path)
    before = to_plain(Recipe(steps=image.env({"A": "hidden"}).steps), {})
    after = to_plain(Recipe(steps=image.env({"A": "other"}).steps), {})
    [added, removed] = why(before, after)
    assert added.startswith("step of pytest_remotegpu_modal_image: env (")
    assert added.endswith(" added")
    assert removed.endswith(" removed")
    assert "hidden" not in json.dumps(before)


def test_a_recipe_survives_its_way_to_another_process(tmp_path: Path) -> None:
    recipe = Recipe(
        python="3.12",
        base=Base("ubuntu", adds_python=True),
        apt=("git",),
        uv=UvProject("uv.lock", "a", "b", ("x",), ("y",), ("z",), (("torch", "2"),)),
        files=Files(("r.txt",), ("numpy",), ("scipy",), ("TOKEN",)),
        variables=(("A", "1"),),
        steps=Image(tmp_path).run_commands("x", env={"B": None}).steps,
        volumes=(Volume("m", "/m", read_only=True),),
    )
    assert decode(json.loads(json.dumps(encode(recipe)))) == recipe
