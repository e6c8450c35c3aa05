"""A folder of packages for the peers, apart from the project's own environment, which it can see."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parent.parent / "peers.txt"
FOLDER = REQUIREMENTS.parent / ".peers-venv"


def peers_python(folder: Path = FOLDER, requirements: Path = REQUIREMENTS) -> Path:
    """The interpreter that has the peers of a list; installs them where they are not there.

    Raises:
        subprocess.CalledProcessError: pip could not.
    """
    python = folder / "bin" / "python"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    mark = folder / "installed"
    if not mark.exists() or mark.read_text() != wanted:
        venv.create(folder, with_pip=True, clear=True)
        # Behind its own packages, so that none of those here is shadowed by one of the project's.
        site = next((folder / "lib").glob("python*/site-packages"))
        (site / "project.pth").write_text(sysconfig.get_path("purelib") + "\n")
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--no-deps", "-r", requirements],
            check=True, stdout=sys.stderr,
        )  # fmt: skip
        mark.write_text(wanted)
    return python


def versions(python: Path, names: list[str]) -> dict[str, str]:
    """Of the packages that this interpreter finds."""
    code = (
        "import json, sys; from importlib import metadata\n"
        "print(json.dumps({d.name.lower(): d.version for d in reversed(list(metadata.distributions()))}))"
    )
    import json

    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    return {name: found[name] for name in names if name in found}
