"""Makes the pictures of the page: `make screenshots`. Needs Chromium (Debian: apt-get install chromium).

A headless browser looks at the pages of `lakemirror demo --serve` while the flights arrive, and once a file is broken.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "how-to" / "pictures"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_DAYS = "150"


def main() -> int:
    browser = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        print("no Chromium here: apt-get install chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary) / "demo"
        words = ["-u", "-m", "lakemirror.cli", "demo", "--serve", "--days", _DAYS, "--port", "0", "--into", str(root)]
        plain = {name: value for name, value in os.environ.items() if not name.startswith("LAKEMIRROR_")}
        demo = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True, env=plain)
        assert demo.stdout is not None
        try:
            url = demo.stdout.readline().strip().removeprefix("The page: ").rstrip("/")
            name, _, password = demo.stdout.readline().strip().removeprefix("Name ").partition(", password ")
            page = _Page(browser, url, f"{name}:{password}")
            flights = page.until("/ui/overview.json", lambda found: found["databases"])[0]["databaseId"]
            database = f"/ui/databases/{flights}"
            page.until(f"{database}.json", lambda found: _rows(found, "flights") > 40_000)
            page.take("overview", "/", "1100,380")
            page.take("table", f"{database}/tables/flights", "1100,1250", dark=True)
            for line in demo.stdout:
                if "until Ctrl-C" in line:
                    break
            (root / "demo/flights/Files/LandingZone/planes" / f"{2:020}.parquet").write_text("broken")
            page.until(f"{database}.json", lambda found: any(each["error"] for each in found["tableList"]))
            page.take("database", database, "1100,640")
            page.take("narrow", database, "420,1500", dark=True)
        finally:
            demo.send_signal(signal.SIGINT)
            demo.wait(60)
    return 0


class _Page:
    """The service's page in a browser, and its JSON twins."""

    def __init__(self, browser: str, url: str, pair: str) -> None:
        self._browser, self._url, self._pair = browser, url, pair

    def until(self, path: str, wanted: Callable[[Any], Any]) -> Any:
        """What `wanted` gives back of a twin, once that is true."""
        header = {"Authorization": "Basic " + base64.b64encode(self._pair.encode()).decode()}
        for _ in range(600):
            request = urllib.request.Request(f"{self._url}{path}", headers=header)
            with urllib.request.urlopen(request, timeout=10) as answer:
                found = wanted(json.load(answer))
            if found:
                return found
            time.sleep(0.2)
        raise SystemExit(f"{path} does not show what is waited for")

    def take(self, name: str, path: str, size: str, *, dark: bool = False) -> None:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}"]
        if dark:
            options.append("--blink-settings=preferredColorScheme=0")
        FOLDER.mkdir(exist_ok=True)
        shot = f"--screenshot={FOLDER / f'{name}.png'}"
        address = self._url.replace("http://", f"http://{self._pair}@") + path
        subprocess.run([self._browser, *options, shot, address], check=True, capture_output=True, timeout=120)
        print(FOLDER / f"{name}.png")


def _rows(view: Any, table: str) -> int:
    return next((int(each["rows"]) for each in view["tableList"] if each["table"] == table), 0)


if __name__ == "__main__":
    raise SystemExit(main())
