"""Prints name, version and licence of every package that is installed where it runs, sorted by name.

python -I scripts/licences.py
"""

from __future__ import annotations

from importlib import metadata


def licence(package: metadata.Distribution) -> str:
    """What the package says of its licence: the expression, else the classifiers, else the first line of its text."""
    found = package.metadata
    if expression := found.get("License-Expression"):
        return str(expression)
    classifiers = [each for each in found.get_all("Classifier") or [] if each.startswith("License ::")]
    if classifiers:
        return ", ".join(each.rpartition(" :: ")[2] for each in classifiers)
    return (found.get("License") or "not told").strip().splitlines()[0]


if __name__ == "__main__":
    for package in sorted(metadata.distributions(), key=lambda each: each.name.lower()):
        print(f"{package.name}=={package.version}\t{licence(package)}")
