"""The wheel, built and installed outside the checkout: command line and report work from what is in it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email import message_from_bytes
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import pytest

_ROOT = Path(__file__).parents[1]
# Array libraries of a user's arrays, and what comes with torch and with dask.
_BROUGHT = {"cloudpickle", "cupy", "cupyx", "torch", "triton"}
# What these rooms import is declared by extras; everything else must work with the dependencies alone.
_ROOMS_OF_EXTRAS = (
    "closefar/cli/",
    *(f"closefar/label/{name}.py" for name in ("app", "security", "server")),
    "closefar/rows/kernels.py",
)


class Installed(NamedTuple):
    """The wheel, and the folder of the environment that it is installed in."""

    wheel: Path
    environment: Path

    def run(self, *command: str, folder: Path) -> str:
        """Run a program of the environment and return what it prints."""
        program = self.environment / "bin" / command[0]
        return _run(str(program), *command[1:], folder=folder)


def _run(*command: str, folder: Path) -> str:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(folder / "dist"),
        str(_ROOT),
    ]  # an sdist, and of it the wheel
    _run(sys.executable, *build, folder=folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    program = environment / "bin" / "python"
    _run(
        sys.executable, "-m", "pip", "--python", str(program), "install", "--no-deps", "--no-index", str(wheel),
        folder=folder,
    )  # fmt: skip
    # Other packages are those of the environment that runs the tests; its own closefar, being editable, is not seen.
    (site_packages,) = environment.glob("lib/*/site-packages")
    (site_packages / "others.pth").write_text("\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))
    return Installed(wheel, environment)


def test_the_package_is_that_of_the_wheel(installed: Installed, tmp_path: Path) -> None:
    place = installed.run("python", "-c", "import closefar; print(closefar.__file__)", folder=tmp_path)
    assert Path(place).is_relative_to(installed.environment)
    assert not list(installed.environment.glob("lib/*/site-packages/*.egg-link"))


def test_the_command_line_fits_and_reports(installed: Installed, tmp_path: Path) -> None:
    version = installed.wheel.name.split("-")[1]
    assert installed.run("closefar", "--version", folder=tmp_path).strip() == version
    assert installed.run("python", "-m", "closefar", "--version", folder=tmp_path).strip() == version
    installed.run("closefar", "demo", "--files", folder=tmp_path)
    files = ("--points", "points.csv", "--pairs", "pairs.csv")
    installed.run("closefar", "fit", *files, "--report", "report.html", folder=tmp_path)
    assert (tmp_path / "report.html").stat().st_size > 50_000
    assert "close" in installed.run("closefar", "inspect", "model.closefar", folder=tmp_path)


def test_each_import_is_of_a_declared_dependency(installed: Installed) -> None:
    needed, of_extras = _requirements(installed.wheel)
    for name, (at_the_top, anywhere) in _imports(installed.wheel).items():
        declared = needed | of_extras | _BROUGHT if name.startswith(_ROOMS_OF_EXTRAS) else needed
        assert at_the_top <= declared, f"{name} needs {at_the_top - declared}"
        assert anywhere <= needed | of_extras | _BROUGHT, f"{name} needs {anywhere - needed - of_extras}"


def _requirements(wheel: Path) -> tuple[set[str], set[str]]:
    """Return the distributions that are always installed, and those of the extras for users."""
    with zipfile.ZipFile(wheel) as content:
        (path,) = (name for name in content.namelist() if name.endswith(".dist-info/METADATA"))
        lines = message_from_bytes(content.read(path)).get_all("Requires-Dist") or []
    needed: set[str] = set()
    of_extras: set[str] = set()
    for line in lines:
        name = _normal(re.match(r"[\w.-]+", line)[0])
        extra = re.search(r"extra == '([\w-]+)'", line)
        if extra is None:
            needed.add(name)
        elif extra[1] not in ("docs", "test", "test-torch"):
            of_extras.add(name)
    return needed, of_extras


def _imports(wheel: Path) -> dict[str, tuple[set[str], set[str]]]:
    """Return, for each module, the distributions that it imports when it is loaded, and those that it ever imports."""
    homes = {"faiss": ["faiss-cpu"], **packages_distributions()}
    found = {}
    with zipfile.ZipFile(wheel) as content:
        for name in content.namelist():
            if name.endswith(".py"):
                tree = ast.parse(content.read(name))
                found[name] = tuple(
                    {_normal(homes.get(module, [module])[0]) for module in _modules(part)}
                    for part in (tree.body, list(ast.walk(tree)))
                )
    assert "closefar/__init__.py" in found
    return found


def _modules(nodes: list[ast.AST] | list[ast.stmt]) -> set[str]:
    """The packages that these nodes import, without Python's own and closefar."""
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"closefar"}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
