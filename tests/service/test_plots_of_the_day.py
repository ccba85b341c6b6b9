"""The plots of the last day: figures as plain Python computes them, SVG that loads nothing, tables by pages."""

from __future__ import annotations

import math
import random
import re
import time
from collections import defaultdict
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from running_service import Running, until
from test_operating_plane import basic

from lakemirror.executions.execution import Execution
from lakemirror.executions.execution_log import ExecutionLog
from lakemirror.executions.last_day import BIN, BINS, last_day
from lakemirror.service.auth.principals import Issued
from lakemirror.service.operating import views
from lakemirror.service.operating.day_cache import DayCache
from lakemirror.service.operating.page import database_page, table_page
from lakemirror.service.operating.plots import day_plots
from lakemirror.settings.settings import Settings
from lakemirror.status.status import DatabaseStatus, TableStatus, TargetStatus, write_status
from lakemirror.storage import LocalStorage

NOW = time.time()


def filled(folder: Path, executions: list[Execution], carried: int = 0) -> LocalStorage:
    """A database in which these things happened, the first so many of them in the table, the others in the spool."""
    (folder / "Files/LandingZone").mkdir(parents=True, exist_ok=True)
    log = ExecutionLog(LocalStorage(folder), Settings(durability="process"))
    for number, each in enumerate(executions):
        log.record(each)
        if number + 1 == carried:
            log.carry()
    return LocalStorage(folder)


def some(count: int) -> list[Execution]:
    chance = random.Random(7)
    found = []
    for number in range(count):
        when = round(NOW - chance.random() * 90_000, 3)
        name = ("", f"t{number % 3}") if number % 2 else ("sales", "t1")
        if number % 10 == 9:
            found.append(Execution(when, "FailTable", *name, error_code="file-unreadable"))
        else:
            lag = round(chance.expovariate(1), 3)
            found.append(Execution(when, "Replicating", *name, 0.1, number, 1, lag, 1, 1, 1, "local"))
    found.append(Execution(NOW, "Vacuum", "", "t1", 1.0, 5))
    return found


@pytest.mark.parametrize("table", ["", "sales.t1", "t2", "none"])
def test_the_figures(tmp_path: Path, table: str) -> None:
    everything = some(700)
    storage = filled(tmp_path, everything, carried=500)
    found = last_day(storage, Settings(), NOW).plot(NOW, table)
    end = (math.floor(NOW / BIN) + 1) * BIN
    rows, lags, errors = defaultdict[int, int](int), defaultdict[int, list[float]](list), defaultdict[int, int](int)
    for each in everything:
        place = math.floor((each.ended - end) / BIN) + BINS
        if place >= 0 and each.name == (table or each.name):
            errors[place] += each.operation == "FailTable"
            if each.lag is not None:
                rows[place] += each.rows
                lags[place].append(each.lag)
    assert found["rowsAMinute"] == [round(rows[place] / 10, 2) for place in range(BINS)]
    assert found["errors"] == [errors[place] for place in range(BINS)]
    for share, name in ((0.5, "lagP50Seconds"), (0.95, "lagP95Seconds")):
        wanted = [
            sorted(lags[place])[math.ceil(share * len(lags[place])) - 1] if lags[place] else None
            for place in range(BINS)
        ]
        assert found[name] == wanted


def test_the_pictures_are_well_formed_and_load_nothing(tmp_path: Path) -> None:
    day = last_day(filled(tmp_path, some(300)), Settings(), NOW).plot(NOW)
    root = ElementTree.fromstring(f"<div>{day_plots(day)}</div>")
    assert len(root.findall(".//svg")) == 3
    for svg in root.iter("svg"):
        assert svg.get("aria-label")
        _, _, width, height = (float(each) for each in (svg.get("viewBox") or "").split())
        for shape in svg.iter("rect"):
            x, y, w, h = (float(shape.get(name, "nan")) for name in ("x", "y", "width", "height"))
            assert -1 <= x <= x + w <= width + 1
            assert -2 <= y <= y + h <= height + 2
        for line in svg.iter("polyline"):
            places = [tuple(map(float, each.split(","))) for each in (line.get("points") or "").split()]
            assert len(places) > 1
            assert all(0 <= x <= width and 0 <= y <= height for x, y in places)
    assert not {"script", "style", "image", "use", "a"} & {each.tag for each in root.iter()}
    assert not any(
        name in ("style", "href", "src") or name.startswith("on") for each in root.iter() for name in each.attrib
    )


@pytest.mark.parametrize(("most", "said"), [(0.2, "at most 0.2"), (7.25, "at most 7.2"), (12_345.6, "at most 12,346")])
def test_small_values_are_not_called_none(most: float, said: str) -> None:
    day = {
        "rowsAMinute": [0.0, most], "lagP50Seconds": [None, 0.004], "lagP95Seconds": [None, 0.04], "errors": [0, 0],
        "secondsABin": 600, "from": "2026-11-26T14:58:12", "to": "2026-11-27T14:58:12",
    }  # fmt: skip
    plots = day_plots(day)
    assert f"Rows a minute, {said}<" in plots and "apply, at most 0.04:" in plots


def test_nothing_happened_and_not_read_yet(tmp_path: Path) -> None:
    day = last_day(filled(tmp_path, []), Settings(), NOW).plot(NOW)
    assert "Nothing was applied" in day_plots(day)
    assert "being read" in day_plots(None)
    one = last_day(filled(tmp_path, [Execution(NOW, "Replicating", "", "t", 0.1, 3, 1, 0.5, 1, 1, 1)]), Settings(), NOW)
    assert day_plots(one.plot(NOW)).count('width="4" height="4"') == 2, "a single value is seen, too"
    assert "No errors" in day_plots(one.plot(NOW))


def test_a_view_waits_only_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = filled(tmp_path, some(20))
    database: Any = SimpleNamespace(id="1", folder=tmp_path)
    slow = last_day

    def wait(*given: Any) -> Any:
        time.sleep(0.3)
        return slow(*given)

    monkeypatch.setattr("lakemirror.service.operating.day_cache.last_day", wait)
    days = DayCache()
    assert days.plot(database) is None
    assert until(lambda: days.plot(database) is not None)
    shown = days.plot(database)
    monkeypatch.setattr("lakemirror.service.operating.day_cache.FRESH", -1.0)
    assert days.plot(database) == shown, "the old plots are shown while new ones are read"
    assert storage.exists("Files/Monitoring/executions")


def test_a_page_has_so_many_tables_and_those_with_errors_come_first(tmp_path: Path) -> None:
    (tmp_path / "Files/LandingZone").mkdir(parents=True)
    tables = [TableStatus("", "Replicating", f"t{number:04}", position=1) for number in range(450)]
    began = datetime(2026, 3, 1, 2, tzinfo=timezone.utc).timestamp()
    history = TargetStatus("t0002__history", "scd2", 1, "Replicating", began=began)
    tables[2] = replace(tables[2], history=(history,), late_changes=1200)
    tables[440] = TableStatus("", "Failed", "bad", error_code="file-unreadable", error_message="broken", position=1)
    write_status(LocalStorage(tmp_path), DatabaseStatus("Running", tables=tuple(tables)))
    database: Any = SimpleNamespace(
        id="1", folder=tmp_path, display_name="shop", description="", workspace=SimpleNamespace(name="sales")
    )
    host: Any = SimpleNamespace(state=lambda _: ("Running", None), status=lambda _: None, history=lambda *_: [])
    days = DayCache()
    seen: list[str] = []
    for number in (1, 2, 3):
        view = views.database_view(database, host, days, NOW, number)
        assert view is not None
        seen += [each["table"] for each in view["tableList"]]
        text = database_page(view)
        assert f"page {number} of 3" in text
        assert (f"/ui/databases/1/page/{number + 1}" in text) == (number < 3)
        assert (f"/ui/databases/1/page/{number - 1}" in text) == (number > 1)
    assert seen[0] == "bad"
    assert sorted(seen) == sorted(each.name for each in tables)
    assert views.database_view(database, host, days, NOW, 4) is None
    assert views.database_view(database, host, days, NOW, 0) is None
    one = views.table_view(database, "t0001", host, days, NOW)
    assert one is not None
    assert "The last day" in table_page(one)
    other = views.table_view(database, "t0002", host, days, NOW)
    assert other is not None
    assert "Table of scd2" in table_page(other) and other["lateChanges"] == 1200
    assert re.search(r"Late changes\W.*?>1,200<", table_page(other)) and "Late changes" not in table_page(one)
    assert "t0002__history: file 1, Replicating, since 2026-03-01 02:00:00 UTC" in table_page(other)


def test_over_the_wire(running: Running, token: str, writer: Issued) -> None:
    database = running.create(token, "plotted", start=True)
    folder = running.root / "sales/plotted"
    filled(folder, [Execution(time.time(), "Replicating", "", "t", 0.1, 30, 1, 0.5, 1, 1, 1, "local")])
    head = basic(writer)
    path = f"/ui/databases/{database}"
    until(lambda: (running.send("GET", f"{path}.json", headers=head).json["lastDay"] or {}).get("rowsAMinute"))
    day = running.send("GET", f"{path}.json", headers=head).json["lastDay"]
    assert sum(day["rowsAMinute"]) == 3.0
    page = running.send("GET", path, headers=head)
    assert b"<svg" in page.body
    assert b"Rows a minute, at most 3" in page.body
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert running.send("GET", f"{path}/page/1", headers=head).status == 200
    assert running.send("GET", f"{path}/page/1.json", headers=head).json["pages"] == 1
    for wrong in ("2", "0", "x", "-1", "1e3", "٣"):
        answer = running.send(
            "GET", f"{path}/page/{wrong.encode().hex() if not wrong.isascii() else wrong}", headers=head
        )
        assert answer.status == 404
    assert b".most" in running.send("GET", "/ui/style.css").body


def test_every_metric_is_on_its_page(running: Running, admin: Issued) -> None:
    page = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text(encoding="utf-8")
    text = running.send("GET", "/metrics", headers=basic(admin)).body.decode()
    there = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE lakemirror")}
    assert there == set(re.findall(r"^\| `(lakemirror_\w+)`", page, re.M))
