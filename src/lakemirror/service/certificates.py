"""The certificate of the listener: one that is given, or one of an own authority that is made once.

tls/ca.pem in the service's own folder is what clients trust.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import socket
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lakemirror.errors import LakemirrorError
from lakemirror.storage import Place
from lakemirror.storage.place import local_path
from lakemirror.storage.private_files import content_of, write_private

NAMES = ("localhost", "*.localhost", "*.dfs.localhost", "*.blob.localhost", "127.0.0.1", "::1")
_CA_DAYS = 3650
_DAYS = 397  # what clients accept at most
_RENEW = 30  # days before the end from which a start makes a new certificate


@dataclass(frozen=True)
class Certificate:
    """PEM files. `authority`: what clients trust, None for a certificate that was given."""

    chain: Place
    key: Place
    authority: Place | None = None


def made_certificate(folder: Place, names: Sequence[str] = ()) -> Certificate:
    """The certificate in a folder; made where it is missing, lacks one of the names, or ends within 30 days.

    The authority stays the same for as long as it is valid, so that clients go on trusting it.
    """
    if (place := local_path(folder)) is not None:
        place.mkdir(mode=0o700, exist_ok=True)
    certificate = Certificate(folder / "cert.pem", folder / "key.pem", folder / "ca.pem")
    wanted = list(dict.fromkeys([*NAMES, socket.gethostname(), *names]))
    key_path = folder / "ca-key.pem"
    authority, ca_pem = _loaded(folder / "ca.pem"), content_of(key_path)
    if authority is None or ca_pem is None:
        ca_key = ec.generate_private_key(ec.SECP256R1())
        authority = _authority(ca_key)
        write_private(key_path, _pem_key(ca_key))
        write_private(folder / "ca.pem", authority.public_bytes(serialization.Encoding.PEM), 0o644)
        current = None
    else:
        loaded = serialization.load_pem_private_key(ca_pem, None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise LakemirrorError("service-option-invalid", f"{key_path} is not the key that lakemirror made")
        ca_key = loaded
        current = _loaded(certificate.chain)
    if current is None or not _belongs(content_of(certificate.key), current) or not _fits(current, authority, wanted):
        key = ec.generate_private_key(ec.SECP256R1())
        leaf = _leaf(key, ca_key, authority, wanted)
        write_private(certificate.key, _pem_key(key))
        write_private(certificate.chain, leaf.public_bytes(serialization.Encoding.PEM), 0o644)
    return certificate


def tls_context(certificate: Certificate) -> ssl.SSLContext:
    """A server's context, TLS 1.2 and up. LakemirrorError `service-option-invalid` for files that do not fit."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        with _on_disk(certificate.chain) as chain, _on_disk(certificate.key) as key:
            context.load_cert_chain(chain, key)
    except (OSError, ssl.SSLError) as error:
        raise LakemirrorError(
            "service-option-invalid", f"{certificate.chain} and {certificate.key} cannot be used: {error}"
        ) from error
    return context


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"lakemirror on {socket.gethostname()}"[:64])])
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    return (
        _builder(name, name, _CA_DAYS)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _leaf(
    key: ec.EllipticCurvePrivateKey, ca_key: ec.EllipticCurvePrivateKey, authority: x509.Certificate, names: list[str]
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lakemirror")])
    return (
        _builder(subject, authority.subject, _DAYS)
        .public_key(key.public_key())
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _builder(subject: x509.Name, issuer: x509.Name, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _fits(leaf: x509.Certificate, authority: x509.Certificate, names: list[str]) -> bool:
    """True for a certificate of this authority that holds every name and does not end soon."""
    soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=_RENEW)
    try:
        leaf.verify_directly_issued_by(authority)
        held = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # another authority's, or no certificate of a server
        return False
    return leaf.not_valid_after_utc > soon and all(_general_name(name) in held for name in names)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name)
    except ValueError as error:
        raise LakemirrorError("service-option-invalid", f"{name!r} is no name for a certificate: {error}") from error


def _belongs(key: bytes | None, leaf: x509.Certificate) -> bool:
    """True for the key of this certificate: a power cut may have come between the two."""
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    with contextlib.suppress(ValueError):
        found = None if key is None else serialization.load_pem_private_key(key, None)
        return found is not None and found.public_key().public_bytes(*form) == leaf.public_key().public_bytes(*form)
    return False


def _loaded(path: Place) -> x509.Certificate | None:
    try:
        return x509.load_pem_x509_certificate(content_of(path) or b"")
    except ValueError:
        return None


@contextlib.contextmanager
def _on_disk(file: Place) -> Iterator[Path]:
    """The file itself on a disk; of one in a store a copy with mode 0600, since OpenSSL reads files on a disk alone."""
    if (path := local_path(file)) is not None:
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="lakemirror-") as copy:
        copy.write(file.read_bytes())
        copy.flush()
        yield Path(copy.name)


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
