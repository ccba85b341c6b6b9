"""Tests by what they cost: CONTRIBUTING.md says what is where."""

import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # some hundred processes would compile the package again,
sys.dont_write_bytecode = False  # and pytest its plugins and the tests
