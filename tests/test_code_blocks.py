"""Every code block of the documentation runs: Python as doctests, commands here, in the order of their page.

A block is one of ``pycon`` (pytest runs those as doctests), ``console`` (each line that begins with
``$`` is run in one folder a page, and what follows it is its output, ``...`` for anything) and
``text``, which is not code.
"""

from __future__ import annotations

import doctest
import re
import shlex
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from closefar.cli.app import app

_ROOT = Path(__file__).parents[1]
_PAGES = [
    path
    for path in sorted([*_ROOT.glob("*.md"), *(_ROOT / "docs").glob("**/*.md")])
    if "_build" not in path.parts and "auto_examples" not in path.parts
]
_FENCE = re.compile(r"^( *)(```+)[ ]*(\S*)[^\n]*\n(.*?)^\1\2[ ]*$", re.MULTILINE | re.DOTALL)
_NO_CODE = {"text", "{toctree}", "{math}", "math", "{note}", "{warning}", "{eval-rst}", "{figure}", "{image}"}
_LIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    """A fenced block, and the line on which it begins."""

    language: str
    code: str
    line: int


def _blocks(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    return [Block(found[3], found[4], text.count("\n", 0, found.start()) + 1) for found in _FENCE.finditer(text)]


def _commands(block: Block) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output that is shown."""
    parts = re.split(r"^\$ ", block.code, flags=re.MULTILINE)
    assert parts[0] == "", f"line {block.line}: a console block begins with a command"
    found = []
    for part in parts[1:]:
        command, _, output = re.sub(r"\\\n", " ", part).partition("\n")
        found.append((command, output))
    return found


_IDS = [str(path.relative_to(_ROOT)) for path in _PAGES]


@pytest.mark.parametrize("path", _PAGES, ids=_IDS)
def test_each_block_is_of_a_kind_that_runs(path: Path) -> None:
    for block in _blocks(path):
        where = f"{path.name}, line {block.line}"
        assert block.language in {"pycon", "console"} | _NO_CODE, f"{where}: {block.language!r}"
        assert block.language != "pycon" or ">>> " in block.code, where
        # The blank line ends the last output: without it doctest takes the fence for output.
        assert block.language != "pycon" or block.code.endswith("\n\n"), f"{where}: no blank line at its end"


@pytest.mark.parametrize("path", _PAGES, ids=_IDS)
def test_commands_run_and_print_what_is_shown(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in _blocks(path):
        if block.language != "console":
            continue
        for command, expected in _commands(block):
            where = f"{path.name}, line {block.line}: {command}"
            words = shlex.split(command, comments=True)
            if words[0] == "closefar":
                got = _run(words[1:], where)
                if expected.strip():
                    assert doctest.OutputChecker().check_output(expected, got, _LIKE), f"{where}\n{got}"
            else:
                assert _SET_UP[words[0]](words[1:]), f"{where} is not what the project has"


def _run(arguments: list[str], where: str) -> str:
    if arguments[0] == "paper":  # minutes: tests/test_cli_paper.py runs it
        arguments = ["paper", "--help"]
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"})
    assert done.exit_code == 0, (where, done.output, done.exception)
    return done.stdout


def _is_target(arguments: list[str]) -> bool:
    """Whether the Makefile has these targets; what they do is run by make itself, with variables such as ARGS=..."""
    makefile = (_ROOT / "Makefile").read_text(encoding="utf-8")
    targets = [argument for argument in arguments if "=" not in argument]
    return all(re.search(rf"^{re.escape(name)}:", makefile, re.MULTILINE) for name in targets)


def _is_installable(arguments: list[str]) -> bool:
    """Whether pip would find closefar with these extras."""
    extras = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    found = re.fullmatch(r"(?:closefar|\.)(?:\[([\w,]+)\])?", arguments[-1])
    return arguments[0] == "install" and found is not None and set((found[1] or "").split(",")) - {""} <= extras.keys()


def _is_environment(arguments: list[str]) -> bool:
    """Whether this activates the environment that the Makefile sets up."""
    return arguments == [".venv/bin/activate"] and _is_target(["demo"])


_SET_UP = {"make": _is_target, "pip": _is_installable, ".": _is_environment}
