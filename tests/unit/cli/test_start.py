"""What makes a command start faster leaves nothing switched off."""

from __future__ import annotations

import gc
import signal
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


@pytest.mark.parametrize("runs", [False, True])
def test_a_command_does_not_wait_for_pythons_end_where_java_runs(runs: bool) -> None:
    code = (
        "import atexit, sys, types; sys.argv = ['lakemirror', '--version']; atexit.register(print, 'end of Python')\n"
        f"sys.modules['jpype'] = types.SimpleNamespace(isJVMStarted=lambda: {runs})\n"
        "from lakemirror.cli import main; main()"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("lakemirror")
    assert ("end of Python" in ran.stdout) is not runs


@pytest.mark.parametrize("module", ["logging", "lakemirror.errors", "lakemirror.cli.supervised"])
def test_an_interrupt_while_the_command_is_imported_shows_no_traceback(module: str) -> None:
    program = f"""
import sys

class Interrupted:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted)
from lakemirror.cli import main
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode in (-signal.SIGINT, 130) and not done.stderr
