"""Makes the pictures of the page: `make screenshots`. Needs Chromium (Debian: apt-get install chromium).

A service on a folder in /tmp gets a few tables, one of them broken, and a headless browser looks at three pages.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from lakemirror.publisher import Landing
from lakemirror.service.authority.principals import Principals
from lakemirror.service.service import Options, Service

FOLDER = Path(__file__).parent / "how-to" / "pictures"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> int:
    browser = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        print("no Chromium here: apt-get install chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        issued = Principals(root).add("viewer", ["*=read"])
        _publish(root)
        loop = asyncio.new_event_loop()
        service = Service(root, Options(port=0, clear=True))
        threading.Thread(target=loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(service.start(), loop).result()
        try:
            pair = f"viewer:{issued.client_secret}"
            shop = _settled(service.url, pair)
            for table in ("orders", "customers"):
                _more(root / "sales/shop", table)
            _take(browser, service.url, pair, shop)
        finally:
            asyncio.run_coroutine_threadsafe(service.stop(), loop).result()
    return 0


def _publish(root: Path) -> None:
    for workspace, database, tables in (
        ("sales", "shop", ("orders", "customers", "payments")),
        ("sales", "returns", ("parcels",)),
        ("stock", "warehouse", ("items", "places")),
    ):
        folder = root / workspace / database
        (folder / "Files/LandingZone").mkdir(parents=True)
        for number, table in enumerate(tables):
            rows = [{"id": n, "amount": n * 1.5} for n in range(1000 * (number + 1))]
            Landing(folder).table(table, keys=["id"]).insert(rows)
    broken = root / "sales/shop/Files/LandingZone/payments/_metadata.json"
    broken.write_text('{"keyColumns": ["id"')


def _more(folder: Path, table: str) -> None:
    landing = Landing(folder).table(table, keys=["id"])
    for turn in range(12):
        landing.insert([{"id": 10_000 * (turn + 1) + n, "amount": 1.0} for n in range(40 + 97 * turn % 300)])
        time.sleep(0.4)


def _settled(url: str, pair: str) -> str:
    """Waits until no table is behind; the id of the shop."""
    header = {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
    for _ in range(200):
        request = urllib.request.Request(f"{url}/ui/overview.json", headers=header)
        with urllib.request.urlopen(request, timeout=10) as answer:
            found = json.load(answer)["databases"]
        if len(found) == 3 and all(each["rows"] for each in found):
            return next(str(each["databaseId"]) for each in found if each["database"] == "shop")
        time.sleep(0.1)
    raise SystemExit("the tables did not settle")


def _take(browser: str, url: str, pair: str, shop: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    address = url.replace("http://", f"http://{pair}@")
    for name, path, size, dark in (
        ("overview", "/", "1100,420", False),
        ("database", f"/ui/databases/{shop}", "1100,560", False),
        ("table", f"/ui/databases/{shop}/tables/orders", "1100,1000", True),
        ("narrow", f"/ui/databases/{shop}", "420,1100", True),
    ):
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}"]
        if dark:
            options.append("--blink-settings=preferredColorScheme=0")
        shot = f"--screenshot={FOLDER / f'{name}.png'}"
        subprocess.run([browser, *options, shot, address + path], check=True, capture_output=True, timeout=120)
        print(FOLDER / f"{name}.png")


if __name__ == "__main__":
    raise SystemExit(main())
