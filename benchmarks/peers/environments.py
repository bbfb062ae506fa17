"""The interpreters of peers: one virtual environment for each clash of pins, made when it is first needed."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import threading
import venv
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ENVIRONMENTS", "Environment", "Interpreters"]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks" / ".environments"
SECONDS_TO_INSTALL = 1800


@dataclass(frozen=True)
class Environment:
    """What pip installs: the requirements, and then each further step, which may have options of `pip install`.

    `{root}` stands for the folder of this project.  An environment without requirements is the interpreter that runs
    the benchmark.
    """

    name: str
    requirements: tuple[str, ...] = ()
    steps: tuple[tuple[str, ...], ...] = ()

    @property
    def installs(self) -> list[list[str]]:
        """The arguments of each call of `pip install`."""
        calls = [self.requirements] if self.requirements else []
        return [[word.replace("{root}", str(ROOT)) for word in call] for call in (*calls, *self.steps)]

    @property
    def fingerprint(self) -> str:
        """A hash of what is installed."""
        return hashlib.sha256(repr((self.name, self.requirements, self.steps)).encode()).hexdigest()[:16]


ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment("closefar"),
        # metric-learn 0.7.0 fails with scikit-learn 1.8.
        Environment("metric-learn", ("metric-learn==0.7.0", "scikit-learn==1.7.2")),
        # Its SDML passes an argument to the graphical lasso that scikit-learn 1.5 no longer has.
        Environment("metric-learn for SDML", ("metric-learn==0.7.0", "scikit-learn==1.4.2", "numpy<2", "scipy<1.14")),
        # pyDML 0.1.0 is compiled here, against an old NumPy that its own requirements would replace: hence --no-deps.
        Environment(
            "pyDML",
            (
                *("numpy==1.23.5", "scipy==1.11.4", "scikit-learn==1.2.2", "Cython==0.29.37", "setuptools<66", "wheel"),
                *("pandas==1.5.3", "matplotlib==3.7.5", "seaborn==0.12.2", "six"),
            ),
            (("--no-build-isolation", "--no-deps", "pyDML==0.1.0"),),
        ),
        Environment("torch", ("torch==2.13.0", "numpy")),
        Environment("cvxpy", ("cvxpy", "clarabel", "scs", "numpy")),
        Environment("cblearn", ("cblearn",)),
        Environment("statsmodels", ("statsmodels",)),
        Environment("mord", ("mord", "scikit-learn", "scipy", "numpy")),
        Environment("cleanlab", ("cleanlab", "scikit-learn")),
        Environment("crowd-kit", ("crowd-kit",), (("--editable", "{root}"),)),
    )
}


class Interpreters:
    """Finds the interpreter of an environment, which is made at the first call; a failure is remembered."""

    def __init__(self, here: bool = False, folder: Path = FOLDER) -> None:
        self._here, self._folder = here, folder
        self._locks = {name: threading.Lock() for name in ENVIRONMENTS}
        self._reasons: dict[str, str] = {}

    def find(self, environment: Environment) -> tuple[Path | None, str]:
        """Return the interpreter, or None and the reason why there is none."""
        if self._here or not environment.installs:
            return Path(sys.executable), ""
        with self._locks.setdefault(environment.name, threading.Lock()):
            if environment.name not in self._reasons:
                self._reasons[environment.name] = self._make(environment)
        reason = self._reasons[environment.name]
        return (None if reason else self._python(environment)), reason

    def fingerprint(self, environment: Environment) -> str:
        """Return a hash of what a peer of this environment runs in."""
        return f"here, {environment.name}" if self._here else environment.fingerprint

    def _python(self, environment: Environment) -> Path:
        bin_folder = "Scripts" if sys.platform == "win32" else "bin"
        return self._folder / environment.name / bin_folder / "python"

    def _make(self, environment: Environment) -> str:
        """Create an environment and install into it, unless that is done; returns the reason of a failure."""
        folder = self._folder / environment.name
        done = folder / "installed"
        if done.exists() and done.read_text() == environment.fingerprint:
            return ""
        print(f"Installing {environment.name} (log: {_shown(self._log(environment))}) ...", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with self._log(environment).open("w") as log:
            try:
                venv.create(folder, with_pip=True, symlinks=sys.platform != "win32")
                for arguments in environment.installs:
                    command = [str(self._python(environment)), "-m", "pip", "install", *arguments]
                    subprocess.run(command, stdout=log, stderr=log, check=True, timeout=SECONDS_TO_INSTALL)
            except (OSError, subprocess.CalledProcessError):
                return self._why(environment)
            except subprocess.TimeoutExpired:
                return f"pip took more than {SECONDS_TO_INSTALL // 60} minutes to install {environment.name}."
        done.write_text(environment.fingerprint)
        return ""

    def _log(self, environment: Environment) -> Path:
        return self._folder / f"{environment.name}.log"

    def _why(self, environment: Environment) -> str:
        """Say in a sentence why pip failed: the last error that it printed."""
        lines = self._log(environment).read_text(errors="replace").splitlines()
        errors = [line.strip() for line in lines if "error" in line.lower()]
        last = errors[-1] if errors else (lines[-1].strip() if lines else "no message")
        return f"pip can't install {environment.name}: {last[:200]}"


def _shown(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
