"""What makes a command start faster leaves nothing switched off."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from lakemirror.cli.start import importing


def test_garbage_is_collected_again_after_imports() -> None:
    with pytest.raises(ImportError), importing():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
    gc.disable()
    try:
        with importing():
            pass
        assert not gc.isenabled(), "who switched it off keeps it off"
    finally:
        gc.enable()


def test_numpy_starts_no_threads_in_a_command() -> None:
    code = (
        "import os, sys; sys.argv = ['lakemirror', 'sync', '--help']; from lakemirror.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "import gc, numpy; print('threads', len(os.listdir('/proc/self/task')), gc.isenabled())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "threads 1 True"
