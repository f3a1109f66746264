"""Check what a wheel and a source distribution contain: python .ci/distribution.py dist."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

PACKAGES = ("adaptive_dp", "accountants")
NEEDED = ("adaptive_dp/py.typed", "accountants/py.typed", "accountants/__init__.pyi")
ALONGSIDE = ("README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", "Makefile", "pyproject.toml")


def tracked(*folders: str) -> set[str]:
    """Return the files that git knows below the folders."""
    found = subprocess.run(
        ["git", "ls-files", "-z", *folders], capture_output=True, text=True, check=True
    )
    return {name for name in found.stdout.split("\0") if name}


def wheel_problems(wheel: Path) -> list[str]:
    """Return what the wheel lacks, and what it should not have."""
    names = {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")}
    information = {name for name in names if ".dist-info/" in name}
    inside, expected = names - information, tracked(*PACKAGES)
    return [
        *(f"{wheel.name} lacks {name}" for name in sorted(expected - inside)),
        *(f"{wheel.name} has {name}, unknown to git" for name in sorted(inside - expected)),
        *(f"{wheel.name} lacks {name}" for name in NEEDED if name not in inside),
        *([] if any("LICENSE" in name for name in information) else [f"{wheel.name}: no licence"]),
    ]


def source_problems(source: Path) -> list[str]:
    """Return what the source distribution lacks: it must be enough to run the tests."""
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    expected = tracked(*PACKAGES, "tests", "docs", "examples") | set(ALONGSIDE)
    return [f"{source.name} lacks {name}" for name in sorted(expected - names)]


def main(folder: str) -> int:
    """Print the problems of all distributions in the folder; 1 if there are any."""
    wheels, sources = list(Path(folder).glob("*.whl")), list(Path(folder).glob("*.tar.gz"))
    problems = [problem for wheel in wheels for problem in wheel_problems(wheel)]
    problems += [problem for source in sources for problem in source_problems(source)]
    if not wheels or not sources:
        problems.append(f"{folder} needs a wheel and a source distribution")
    print("\n".join(problems) or f"{len(wheels) + len(sources)} distributions are complete")
    return bool(problems)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
