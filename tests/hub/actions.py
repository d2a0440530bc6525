"""Runs a workflow of GitHub's as far as its own scripts go: jobs, steps, expressions, outputs.

Other people's actions do nothing, but for artifacts, which are carried from job to job. Knows the
few expressions that our workflows use, and refuses others.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

TOKEN = re.compile(r"\s*(?:('(?:[^']|'')*')|([\w.-]+(?:\(\))?)|(&&|\|\||==|!=|[(),])|startsWith)")
WORDS = {"&&": "and", "||": "or"}


def look(context: Mapping[str, Any], name: str) -> Any:
    """Look up a name with dots; what is not there is empty, as GitHub has it."""
    value: Any = context
    for part in name.split("."):
        value = value.get(part, "") if isinstance(value, Mapping) else ""
    return value


def evaluate(text: str, context: Mapping[str, Any]) -> Any:
    """Evaluate an expression."""
    code: list[str] = []
    names: dict[str, Any] = {}
    at = 0
    while at < len(text.rstrip()):
        found = TOKEN.match(text, at)
        assert found, f"{text[at:]!r} is no expression that is known here"
        literal, name, sign = found.groups()
        if literal is not None:
            code.append(repr(literal[1:-1].replace("''", "'")))
        elif name in ("always()", "success()"):
            code.append("True")
        elif name == "startsWith":
            code.append("starts")
        elif name is not None:
            key = f"v{len(names)}"
            names[key] = look(context, name)
            code.append(key)
        else:
            code.append(WORDS.get(sign, sign))
        at = found.end()

    def starts(one: str, other: str) -> bool:
        return one.lower().startswith(other.lower())

    return eval(" ".join(code), {"__builtins__": {}, "starts": starts}, names)  # noqa: S307 -- ours


def fill(text: Any, context: Mapping[str, Any]) -> str:
    """Put values in the places of expressions."""
    return re.sub(r"\$\{\{(.*?)\}\}", lambda found: str(evaluate(found[1], context)), str(text))


@dataclass
class Job:
    """What became of a job.

    :ivar result: as GitHub names it. :ivar log: of all its steps. :ivar page: of the run.
    """

    result: str
    outputs: dict[str, str] = field(default_factory=dict)
    log: str = ""
    page: str = ""


@dataclass
class Runner:
    """Runs the jobs of a workflow.

    :ivar path: of the workflow. :ivar folder: where jobs are run and artifacts are kept.
    :ivar context: ``github``, ``inputs``, ``vars`` and ``secrets``.
    :ivar environ: that each step gets; what runs in the place of ``python`` and others is in PATH.
    """

    path: Path
    folder: Path
    context: dict[str, Any]
    environ: dict[str, str]

    def run(self) -> dict[str, Job]:
        """Run all jobs, in order."""
        workflow = YAML(typ="safe", pure=True).load(self.path)
        done: dict[str, Job] = {}
        for name, job in workflow["jobs"].items():
            needs = {need: done[need] for need in job.get("needs", [])}
            told = {need: {"result": j.result, "outputs": j.outputs} for need, j in needs.items()}
            context = {**self.context, "needs": told}
            fine = all(need.result == "success" for need in needs.values())
            condition = job.get("if", "success()")
            if not evaluate(condition, context) or not (fine or "always()" in condition):
                done[name] = Job("skipped")
                continue
            done[name] = self.job(name, job, context, dict(workflow.get("env", {})))
        return done

    def job(self, name: str, job: Any, context: dict[str, Any], env: dict[str, Any]) -> Job:
        """Run the steps of a job; after one that fails only those that always run."""
        place = self.folder / f"{name}-{len(list(self.folder.iterdir()))}"
        temp = place / "temp"
        temp.mkdir(parents=True)
        made, failed = Job("success"), False
        steps: dict[str, Any] = {}
        env |= job.get("env", {})
        for count, step in enumerate(job["steps"]):
            told = {**context, "steps": steps, "runner": {"temp": str(temp)}}
            condition = step.get("if", "success()")
            if not evaluate(condition, told) or (failed and "always()" not in condition):
                steps[step.get("id", str(count))] = {"outcome": "skipped"}
                continue
            filled = {k: fill(v, told) for k, v in {**env, **step.get("env", {})}.items()}
            outcome, outputs = self.step(step, told, filled, made, place / str(count))
            steps[step.get("id", str(count))] = {"outputs": outputs, "outcome": outcome}
            failed = failed or (outcome == "failure" and not step.get("continue-on-error"))
        made.outputs = {
            key: fill(value, {**context, "steps": steps})
            for key, value in job.get("outputs", {}).items()
        }
        made.result = "failure" if failed else "success"
        return made

    def step(
        self, step: Any, context: Mapping[str, Any], env: dict[str, str], made: Job, place: Path
    ) -> tuple[str, dict[str, str]]:
        """Run one step."""
        place.mkdir()
        if "uses" in step:
            return self.action(step, context), {}
        files = {"GITHUB_OUTPUT": place / "output", "GITHUB_STEP_SUMMARY": place / "page"}
        for file in files.values():
            file.touch()
        done = subprocess.run(
            ["/usr/bin/env", "bash", "-e", "-c", step["run"]],
            env={
                **self.environ,
                **env,
                **{key: str(value) for key, value in files.items()},
                "RUNNER_TEMP": context["runner"]["temp"],
            },
            cwd=place,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        made.log += done.stdout + done.stderr
        made.page += (place / "page").read_text("utf-8")
        text = (place / "output").read_text("utf-8")
        found = re.findall(r"^([\w-]+)<<(\S+)\n(.*?)\n\2\n", text, re.MULTILINE | re.DOTALL)
        return ("failure" if done.returncode else "success"), {n: v for n, _, v in found}

    def action(self, step: Any, context: Mapping[str, Any]) -> str:
        """Carry artifacts; other actions do nothing."""
        given = {key: fill(value, context) for key, value in step.get("with", {}).items()}
        kept = self.folder.parent / "artifacts"
        kept.mkdir(exist_ok=True)
        if "upload-artifact" in step["uses"] and Path(given["path"]).is_dir():
            shutil.copytree(given["path"], kept / given["name"], dirs_exist_ok=True)
        if "download-artifact" in step["uses"]:
            if not (kept / given["name"]).is_dir():
                return "failure"
            shutil.copytree(kept / given["name"], given["path"], dirs_exist_ok=True)
        return "success"


def stand_in(folder: Path, name: str, script: str) -> None:
    """Put a program in the place of another one."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


def path_with(folder: Path) -> str:
    """Give a PATH on which stand-ins come first."""
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
