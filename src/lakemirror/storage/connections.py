"""Opens one connection for each bucket, with its options.

    environment (AWS_…, AZURE_…, GOOGLE_…) < options given for the bucket ─▶ obstore's store

Options hold secrets. They never appear in an address, an error or a log.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.storage.addresses import parse_address
from lakemirror.storage.disk_cache import DiskCache
from lakemirror.storage.object_store import ObjectStore

_CLIENT = {
    "allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type", "http1_only", "http2_only",
    "pool_idle_timeout", "pool_max_idle_per_host", "proxy_url", "proxy_ca_certificate", "proxy_excludes",
    "root_certificate", "timeout", "user_agent",
}  # fmt: skip
_PREFIXES = {"s3": "aws_", "az": "azure_", "abfs": "azure_", "abfss": "azure_", "gs": "google_"}
_RETRY = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=3), "base": 2},
}
_lock = threading.Lock()
_stores: dict[str, ObjectStore] = {}
_options: dict[str, dict[str, str]] = {}
_disk: DiskCache | None = None


def give_options(address: str, options: Mapping[str, str]) -> None:
    """Sets the options of an address's bucket, such as `AWS_ENDPOINT_URL`. They override the environment.

    Names may be in any case. `address` empty: for every bucket of this process. Open connections keep their options
    until their bucket is requested again.
    """
    root = parse_address(address)[0] if address else ""
    given = {name.lower(): str(value) for name, value in options.items()}
    with _lock:
        if _options.get(root, {}) != given:
            _options[root] = given
            for each in [root] if root else list(_stores):
                _stores.pop(each, None)


def cache_on_disk(folder: Path, most_bytes: int) -> None:
    """Keeps objects that an engine reads at its start in this folder, for every bucket of this process; 0: none."""
    global _disk
    with _lock:
        if not most_bytes:
            _disk = None
        elif _disk is None or _disk.folder != folder:
            _disk = DiskCache(folder, most_bytes)
        else:
            _disk.most_bytes = most_bytes
        for store in _stores.values():
            store.cache.disk = _disk


def options_of(root: str) -> dict[str, str]:
    """The options that were given for a bucket. They hold secrets."""
    with _lock:
        return {**_options.get("", {}), **_options.get(root, {})}


def given_options() -> dict[str, dict[str, str]]:
    """All options that were given, by root; by "" those for every bucket. They hold secrets."""
    with _lock:
        return {root: dict(options) for root, options in _options.items() if options}


def give_only(options: Mapping[str, Mapping[str, str]]) -> None:
    """Sets all options, as `given_options` names them. Others are forgotten; connections with equal options stay."""
    for root in [*given_options(), *options]:
        give_options(root, options.get(root, {}))


def store_at(root: str) -> ObjectStore:
    """The store of a root such as `s3://lake`. `stores-extra-missing`, `setting-invalid`."""
    options = options_of(root)
    with _lock:
        found = _stores.get(root)
        if found is None:
            found = _stores[root] = ObjectStore(root, _opened(root, options), _disk)
        return found


def forget_all() -> None:
    """Closes every connection and forgets all options. For tests."""
    global _disk
    with _lock:
        _disk = None
        _stores.clear()
        _options.clear()


def _opened(root: str, options: Mapping[str, str]) -> Any:
    try:
        from obstore import exceptions
        from obstore.store import from_url
    except ImportError as error:
        raise SetupError("stores-extra-missing", f"{root} needs obstore, which is not installed") from error
    prefix = _PREFIXES[root.partition("://")[0]]
    client, config = _client_options(prefix, options)
    if prefix == "aws_":
        config.setdefault("aws_copy_if_not_exists", "multipart")  # how S3 copies with a condition
    extra: dict[str, Any] = {}
    if prefix == "aws_" and (provider := _profile(config)) is not None:
        extra["credential_provider"] = provider
    try:
        connect: Any = from_url
        return connect(root, config=config or None, client_options=client, retry_config=_RETRY, **extra)
    except (exceptions.BaseError, ValueError, TypeError) as error:
        name = next((each for each in config if each in str(error)), "")
        what = f"the option {name} is not known" if name else "an option of the store is wrong or missing"
        raise LakemirrorError("setting-invalid", f"{root}: {what} ({type(error).__name__})") from None


def _client_options(prefix: str, options: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The options of the HTTP client and those of the store, from the environment and those that were given."""
    client: dict[str, Any] = {"connect_timeout": "5s", "timeout": "60s"}
    for name in _CLIENT:
        text = os.environ.get((prefix + name).upper())
        if text is not None:
            client[name] = _value(text)
    config = {}
    for name, text in options.items():
        bare = name.removeprefix(prefix)
        if bare in _CLIENT:
            client[bare] = _value(text)
        else:
            config[name] = text
    return client, config


def _value(text: str) -> Any:
    lower = text.strip().lower()
    return lower == "true" if lower in ("true", "false") else text


def _profile(config: Mapping[str, str]) -> Any:
    """Credentials of a profile (`AWS_PROFILE`) by boto3, where no key is given and boto3 is installed; else None."""
    has_key = any("access_key_id" in name for name in config) or os.environ.get("AWS_ACCESS_KEY_ID")
    if has_key or not os.environ.get("AWS_PROFILE"):
        return None
    try:
        from boto3.session import Session
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return None
    return Boto3CredentialProvider(Session())
