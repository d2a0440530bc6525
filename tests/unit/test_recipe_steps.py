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
    assert "given 'a b', which is no package" in _refused(image, "apt_install", "git", ["a b"])
    assert "workdir was given 5" in _refused(image, "workdir", 5)
    assert "needs the path" in _refused(image, "add_local_dir")


def test_no_secret_gets_into_an_image(tmp_path: Path) -> None:
    for name in (".env", "conf/.ssh/known", "plain.txt", "conf/open.cfg", "conf/.git/config"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("hidden")
    (tmp_path / "plain.txt").write_text("-----BEGIN PRIVATE KEY-----")
    (tmp_path / "conf" / "link").symlink_to(tmp_path / ".env")
    (tmp_path / "named").symlink_to(tmp_path / ".env")
    image = Image(tmp_path)
    for name in (".env", "named", "plain.txt", "conf/.ssh/known"):
        said = _refused(image, "add_local_file", name, "/x")
        assert f"copies {name!r}, which may hold a secret; whoever can use" in said
    assert "conf/.ssh', which may hold" in _refused(image, "add_local_dir", "conf/.ssh", "/x")
    (tmp_path / "inner").mkdir()
    for name in (".", "..", str(tmp_path), "inner/.."):
        said = _refused(image, "add_local_dir", name, "/x")
        assert "a copy of your code would be in the image" in said
    done = image.add_local_dir("conf", "/x")
    assert [name for name, _digest in done.steps[0].files] == ["conf/open.cfg"]
    assert [note.partition(" leaves out ")[2] for note in done.notes] == [
        "'.git', which is version control data, which never travels",
        "'.ssh', which may hold a secret",
        "'link', which may hold a secret",
    ]


@pytest.mark.parametrize(
    ("method", "args", "kwargs", "what"),
    [
        ("env", [{"A_TOKEN": "hidden"}], {}, "sets A_TOKEN"),
        ("env", [], {"vars": {"DB_PASSWORD": "hidden"}}, "sets DB_PASSWORD"),
        ("env", [{"INDEX": "https://u:hidden@h"}], {}, "an address with a password"),
        ("run_commands", ["make", ["export API_KEY=hidden"]], {}, "sets API_KEY"),
        ("run_commands", ["make"], {"env": {"API_KEY": "hidden"}}, "sets API_KEY"),
        ("dockerfile_commands", ["RUN x", "ENV A_SECRET hidden"], {}, "sets A_SECRET"),
        ("dockerfile_commands", ["FROM x\nENV A_SECRET=hidden"], {}, "sets A_SECRET"),
        ("dockerfile_commands", [["COPY hidden /x"]], {}, "use add_local_file"),
        ("dockerfile_commands", ["RUN x"], {"context_files": {"/x": "y"}}, "use add_local_file"),
        ("dockerfile_commands", ["RUN x"], {"build_args": {"A_TOKEN": "hidden"}}, "sets A_TOKEN"),
        ("pip_install", ["x"], {"index_url": "https://u:hidden@h"}, "an address with a password"),
        ("uv_pip_install", [], {"requirements": ["r.txt"]}, "r.txt, line 2: '-i https://...@h'"),
        ("micromamba_install", [], {"spec_file": ".env"}, "'.env', which may hold a secret"),
        ("uv_pip_install", [], {"requirements": ["gone.txt"]}, "'gone.txt', and there is no"),
    ],
)
def test_no_secret_is_written_into_a_step(
    tmp_path: Path, method: str, args: list[Any], kwargs: dict[str, Any], what: str
) -> None:
    (tmp_path / ".env").write_text("x")
    (tmp_path / "r.txt").write_text("numpy\n-i https://u:hidden@h\n")
    said = _refused(Image(tmp_path), method, *args, **kwargs)
    assert what in said
    assert "hidden" not in said


def test_what_only_looks_like_a_secret_is_recorded(tmp_path: Path) -> None:
    image = Image(tmp_path).env({"TOKENIZERS_PARALLELISM": "false"})
    image = image.run_commands("HF_TOKEN=$HF_TOKEN make", "git clone ssh://git@h/x", secrets=["hf"])
    image = image.dockerfile_commands("COPY --from=busybox /bin/x /x", "ARG A_TOKEN")
    assert len(image.steps) == 3


def test_files_that_a_step_reads_count_by_their_content(tmp_path: Path) -> None:
    names = set()
    for folder, text in (("a", "numpy"), ("b", "numpy"), ("c", "scipy")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "r.txt").write_text(text)
        image = Image(tmp_path / folder).uv_pip_install("x", requirements=["r.txt"])
        [step] = image.steps
        assert step.kwargs == {"requirements": [str(tmp_path / folder / "r.txt")]}
        names.add(fingerprint(Recipe(steps=image.steps), {}))
    assert len(names) == 2


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
