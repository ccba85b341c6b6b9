"""The page: views as HTML that needs no script and loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

from lakemirror.service.operating.plots import day_plots
from lakemirror.status.status import duration_text

REFRESH = 5  # seconds after which a page loads itself again
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

STYLE = """
:root { color-scheme: light dark; --line: #d0d7de; --soft: #59636e; --good: #1a7f37; --bad: #c0202a;
  --wait: #8a5a00; --back: #ffffff; --text: #1f2328; --link: #0757ba; --bar: #4c8bd6; }
@media (prefers-color-scheme: dark) { :root { --line: #3d444d; --soft: #a0a9b4; --good: #4ac26b; --bad: #ff7b72;
  --wait: #e3b341; --back: #0d1117; --text: #e6edf3; --link: #6cb0ff; --bar: #4c8bd6; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 72rem; background: var(--back); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: .5rem 0; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin: 1.5rem 0 .5rem; }
a { color: var(--link); } a:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
nav, .soft, footer { color: var(--soft); } footer { margin-top: 2rem; font-size: .875rem; }
table { border-collapse: collapse; width: 100%; } caption { text-align: left; font-weight: 600; padding: .5rem 0; }
th, td { text-align: left; padding: .4rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: anywhere; } td.number, th.number { text-align: right; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; } .wait { color: var(--wait); }
.problem { border-left: 4px solid var(--bad); padding: .25rem .75rem; margin: 1rem 0; overflow-wrap: anywhere; }
.warning { border-left: 4px solid var(--wait); padding: .25rem .75rem; margin: .5rem 0; overflow-wrap: anywhere; }
ul { margin: 0; padding-left: 1.25rem; } code { font: .875em ui-monospace, monospace; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1rem; } dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; } svg { width: 100%; height: 6rem; } svg rect { fill: var(--bar); }
figure { margin: 1rem 0; } figcaption { color: var(--soft); } .axis { display: flex; justify-content: space-between;
  color: var(--soft); font-size: .875rem; margin: 0; border-top: 1px solid var(--line); }
svg polyline { fill: none; stroke-width: 2px; vector-effect: non-scaling-stroke; }
svg .half { stroke: var(--bar); } svg rect.half { fill: var(--bar); } svg .most { stroke: var(--wait); }
svg rect.most { fill: var(--wait); } svg rect.error { fill: var(--bad); }
.key::before { content: "■ "; } .key.half { color: var(--bar); } .key.most { color: var(--wait); }
@media (max-width: 40rem) {
  thead { position: absolute; clip-path: inset(50%); height: 1px; width: 1px; overflow: hidden; }
  tr { display: block; border-bottom: 2px solid var(--line); padding: .5rem 0; }
  td, td.number { display: flex; justify-content: space-between; gap: 1rem; border: 0; padding: .15rem 0;
    text-align: right; }
  td::before { content: attr(data-label); color: var(--soft); text-align: left; flex: none; }
  td:has(span:empty) { display: none; }
}
"""

_STATES = {
    "Running": "good", "Replicating": "good", "Snapshotting": "good", "Failed": "bad", "Starting": "wait",
    "Stopping": "wait", "Reseeding": "wait", "Stopped": "wait", "Waiting": "wait", "streaming": "good",
    "loading": "good", "stopped": "bad", "waiting": "wait",
}  # fmt: skip
_LEFT_OUT = (("lateChanges", "Late changes"), ("ignoredDeletes", "Ignored deletes"))


def overview_page(view: Mapping[str, Any]) -> str:
    """Every database that the caller may read."""
    rows = [
        [
            _text(each["workspace"]),
            _link(f"/ui/databases/{each['databaseId']}", each["database"]),
            _state(each["state"], each["error"]),
            _counts(each["tables"]),
            *_figures(each),
        ]
        for each in view["databases"]
    ]
    headings = ("Workspace", "Database", "State", "Tables", "Rows", "Bytes", "Pending files", "Behind")
    body = _table("State of every database", headings, rows) if rows else "<p>There is no mirrored database yet.</p>"
    return _page("Mirrored databases", [], body, "/ui/overview.json", view["time"])


def database_page(view: Mapping[str, Any]) -> str:
    """One database: its state, its problem, its tables."""
    address = f"/ui/databases/{view['databaseId']}"
    twin = f"{address}.json" if view["page"] == 1 else f"{address}/page/{view['page']}.json"
    rows = [
        [
            _link(f"{address}/tables/{quote(_safe(each['table']), safe='')}", each["table"]),
            _state(each["state"], each["error"]),
            str(each["position"]),
            _waits(each["waitingFor"]),
            *_figures(each),
        ]
        for each in view["tableList"]
    ]
    headings = ("Table", "State", "Position", "Waits for", "Rows", "Bytes", "Pending files", "Behind")
    facts = [("State", _state(view["state"], view["error"])), ("Workspace", _text(view["workspace"]))]
    if view["description"]:
        facts.append(("Description", _text(view["description"])))
    body = (
        _facts(facts)
        + _problem(view["error"])
        + _warnings(view["warnings"])
        + day_plots(view["lastDay"])
        + _pages(address, view["page"], view["pages"])
        + (_table("Tables", headings, rows) if rows else "<p>No table yet: nothing was published.</p>")
        + "".join(_trouble(each, each["table"]) for each in view["tableList"])
        + "".join(_capture(each) for each in view["captures"])
    )
    return _page(view["database"], [("/", "Mirrored databases")], body, twin, view["time"])


def _pages(address: str, page: int, pages: int) -> str:
    """Links to the neighbouring pages; nothing where there is one page."""
    if pages == 1:
        return ""
    before = _link(f"{address}/page/{page - 1}", "before") + " " if page > 1 else ""
    after = " " + _link(f"{address}/page/{page + 1}", "next") if page < pages else ""
    return f"<p>{before}page {page} of {pages}, tables with errors first{after}</p>"


def table_page(view: Mapping[str, Any]) -> str:
    """One table: position, what it waits for, its last error, its last applies."""
    database = f"/ui/databases/{view['databaseId']}"
    facts = [
        ("State", _state(view["state"], view["error"])),
        ("Position", f"file {view['position']}"),
        ("Waits for", _waits(view["waitingFor"]) or "nothing"),
        ("Rows", f"{view['rows']:,}"),
        *((what, f"{view[name]:,}") for name, what in _LEFT_OUT if name in view),
        ("Bytes", _size(view["bytes"])),
        ("Pending files", f"{view['pendingFiles']:,}"),
        ("Behind", _behind(view)),
        ("Last apply", _text(_moment(view["lastApply"])) if view["lastApply"] else "none yet"),
    ]
    if view["freshnessSeconds"]:
        facts.append(("Goal", f"applied within {duration_text(view['freshnessSeconds'])}"))
    for each in view.get("targets", ())[1:]:
        since = f", since {_moment(each['since'])}" if "since" in each else ""
        what = f"{each['status']} {each['errorCode']}".strip() + since
        facts.append((f"Table of {each['mode']}", _text(f"{each['name']}: file {each['position']}, {what}")))
    if view["engine"]:
        facts.append(("Engine", _text(": ".join(part for part in (view["engine"], view["engineReason"]) if part))))
    body = _facts(facts) + _trouble(view) + _warnings(view["tableWarnings"])
    body += day_plots(view["lastDay"]) + _history(view["history"])
    path = [("/", "Mirrored databases"), (database, view["database"])]
    twin = f"{database}/tables/{quote(_safe(view['table']), safe='')}.json"
    return _page(view["table"], path, body, twin, view["time"])


def no_page() -> str:
    """The page for an address at which nothing is."""
    return _page("Not found", [("/", "Mirrored databases")], "<p>There is no such page.</p>", "", "")


def _page(title: str, path: Sequence[tuple[str, str]], body: str, twin: str, time: str) -> str:
    crumbs = " › ".join(_link(address, name) for address, name in path)
    as_json = f' · <a href="{escape(twin)}">as JSON</a>' if twin else ""
    shown = (
        f"<footer>{_text(_moment(time))}, loads itself again every {REFRESH} seconds{as_json}</footer>" if time else ""
    )
    refresh = f'<meta http-equiv="refresh" content="{REFRESH}">' if time else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{refresh}<title>{_text(title)} · lakemirror</title>"
        '<link rel="stylesheet" href="/ui/style.css"></head><body>'
        f"<nav>{crumbs}</nav><main><h1>{_text(title)}</h1>{body}</main>{shown}</body></html>"
    )


def _table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    numbers = {"Rows", "Bytes", "Pending files", "Behind", "Position", "Files", "Seconds"}
    kinds = [' class="number"' if heading in numbers else "" for heading in headings]
    head = "".join(f'<th scope="col"{kind}>{heading}</th>' for heading, kind in zip(headings, kinds, strict=True))
    lines = []
    for row in rows:
        cells = zip(headings, kinds, row, strict=True)
        lines.append("<tr>" + "".join(f'<td data-label="{h}"{k}><span>{c}</span></td>' for h, k, c in cells) + "</tr>")
    return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts) + "</dl>"


def _problem(error: Mapping[str, str] | None) -> str:
    """The error of a database."""
    if error is None:
        return ""
    ways = [{"what": error["hint"], "command": ""}]
    return f'<div class="problem">{_error(error)}{_what_to_do(ways)}</div>'


def _trouble(table: Mapping[str, Any], name: str = "") -> str:
    """The error of a table, or what it waits for, and what a person can do about it."""
    if table["error"] is None and not table["whatToDo"]:
        return ""
    of = f"{_text(name)}: " if name else ""
    if table["error"] is not None:
        return f'<div class="problem">{of}{_error(table["error"])}{_what_to_do(table["whatToDo"])}</div>'
    waits = f"waits for <strong>{_waits(table['waitingFor'])}</strong>"
    return f'<div class="warning">{of}{waits}{_what_to_do(table["whatToDo"])}</div>'


def _error(error: Mapping[str, str]) -> str:
    file = f"<br>File: {_text(error['file'])}" if error.get("file") else ""
    return f"<strong>{_text(error['code'])}</strong>: {_text(error['message'])}{file}"


def _what_to_do(ways: Iterable[Mapping[str, str]]) -> str:
    items = []
    for each in ways:
        command = f" <code>{_text(each['command'])}</code>" if each["command"] else ""
        items.append(f"<li>{_text(each['what'])}{command}</li>")
    root = " (ROOT is the folder that the service serves)" if any("ROOT" in item for item in items) else ""
    return f"<br>What to do{root}:<ul>{''.join(items)}</ul>"


def _warnings(found: Iterable[Mapping[str, str]]) -> str:
    return "".join(
        f'<div class="warning">Warning <strong>{_text(each["code"])}</strong>: {_text(each["message"])}</div>'
        for each in found
    )


def _capture(capture: Mapping[str, Any]) -> str:
    """A capture: its state, what its source keeps back, its tables and what stopped them."""
    report = capture["status"] or {}
    kept, tables = report.get("logKeptBackBytes"), report.get("tables") or []
    facts = [
        ("State", _state(capture["state"], capture["error"])),
        ("Source", _text(capture["source"])),
        ("Log kept back", "not known" if kept is None else f"{_size(kept)}, {_text(report['walStatus'])}"),
        ("Restarts", str(capture["restarts"])),
    ]
    rows = [
        [
            _text(each["table"]), _state(each["phase"], None), f"{each['rowsLoaded']:,}",
            "" if each["secondsBehind"] is None else duration_text(each["secondsBehind"]),
            _text(": ".join(filter(None, (each["errorCode"], each["errorMessage"])))),
        ]
        for each in tables
    ]  # fmt: skip
    headings = ("Table", "Phase", "Rows loaded", "Behind", "Why")
    shown = _table("Its tables", headings, rows) if rows else ""
    return f"<h2>Capture {_text(capture['name'])}</h2>{_facts(facts)}{_problem(capture['error'])}{shown}"


def _history(applies: Sequence[Mapping[str, Any]]) -> str:
    if not applies:
        return '<p class="soft">No apply since the service started.</p>'
    charts = _chart(applies, "rows", "Rows", lambda rows: f"{rows:,.0f}")
    charts += _chart(applies, "seconds", "Seconds", lambda seconds: f"{seconds:.2f} s")
    rows = [
        [
            _text(_moment(each["time"])), f"{each['rows']:,}", f"{each['seconds']:.2f}", str(each["files"]),
            _size(each["bytes"]), _text(each["engine"]),
        ]
        for each in reversed(applies[-10:])
    ]  # fmt: skip
    headings = ("Time", "Rows", "Seconds", "Files", "Bytes", "Engine")
    return f"<h2>Last applies</h2>{charts}" + _table("The last ten", headings, rows)


def _chart(applies: Sequence[Mapping[str, Any]], name: str, title: str, shown: Callable[[float], str]) -> str:
    """One bar for each apply, the oldest first."""
    most = max(each[name] for each in applies) or 1
    bars = []
    for place, each in enumerate(applies):
        height = max(1, 98 * each[name] / most)
        told = f"{_text(_moment(each['time']))}: {shown(each[name])}, {each['files']} files"
        bars.append(
            f'<rect x="{10 * place + 1}" y="{100 - height:.1f}" width="8" height="{height:.1f}">'
            f"<title>{told}</title></rect>"
        )
    return (
        f'<p class="soft">{title} of each apply, at most {shown(most)}</p>'
        f'<svg role="img" aria-label="{title} of the last {len(applies)} applies, at most {shown(most)}" '
        f'viewBox="0 0 {max(600, 10 * len(applies))} 100" preserveAspectRatio="none">{"".join(bars)}</svg>'
    )


def _figures(view: Mapping[str, Any]) -> list[str]:
    return [f"{view['rows']:,}", _size(view["bytes"]), f"{view['pendingFiles']:,}", _behind(view)]


def _behind(view: Mapping[str, Any]) -> str:
    """How far a table or a database is behind; marked where a goal of freshness is missed."""
    text = duration_text(view["lagSeconds"])
    return f'<span class="bad">{text}, misses its goal</span>' if view["freshnessMissed"] else text


def _state(state: str, error: Mapping[str, str] | None) -> str:
    kind = "bad" if error else _STATES.get(state, "")
    more = f" ({_text(error['code'])})" if error else ""
    return f'<span class="{kind}">{_text(state)}{more}</span>'


def _counts(tables: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {_state(state, None)}" for state, count in tables.items()) or "none"


def _waits(waiting: Mapping[str, str] | None) -> str:
    return f"{_text(waiting['what'])}, since {_text(_moment(waiting['since']))}" if waiting else ""


def _moment(text: str | None) -> str:
    return f"{text[:10]} {text[11:19]} UTC" if text else ""


def _size(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _link(address: str, name: str) -> str:
    return f'<a href="{escape(address)}">{_text(name)}</a>'


def _text(value: str) -> str:
    return escape("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value))


def _safe(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
