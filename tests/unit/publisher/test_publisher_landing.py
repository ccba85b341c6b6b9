"""What `import lakemirror.publisher` takes with it."""

from __future__ import annotations

import subprocess
import sys


def test_nothing_but_pyarrow_is_imported() -> None:
    script = (
        "import sys, lakemirror.publisher; "
        "print([m for m in ('typer', 'rich', 'pyspark', 'pandas', 'numpy', 'adbc_driver_manager') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("[]", "['numpy']")  # pyarrow itself may import numpy
