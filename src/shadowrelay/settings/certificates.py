"""The files of certificates and keys that settings name, and until when each certificate is valid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from shadowrelay.core.time_text import spell
from shadowrelay.core.tracking_row import timestamp
from shadowrelay.settings.schema import Settings

SOON = timedelta(days=14)
"""A certificate that ends sooner is told of."""

_AUTHORITY = "ca"


def files(settings: Settings) -> Iterator[tuple[str, Path]]:
    """Each file of a certificate, of a key or of an authority, with its setting."""
    for name, receive in settings.receive.items():
        yield from _set(f"receive.{name}", tls_certificate=receive.tls_certificate, tls_key=receive.tls_key)
        for at, peer in enumerate(receive.accept_xshadow):
            yield from _set(f"receive.{name}.accept_xshadow[{at}]", certificate=peer.certificate)
    if settings.peer:
        yield from _set(
            "peer", certificate=settings.peer.certificate, key=settings.peer.key, ca=settings.peer.ca
        )
    for group in ("routes", "sites"):
        for name, hop in getattr(settings, group).items():
            for at, one in enumerate(hop.send_xshadow):
                yield from _set(f"{group}.{name}.send_xshadow[{at}]", certificate=one.certificate)
            yield from _set(f"{group}.{name}", xshadow_certificate=hop.xshadow_certificate)


def shown(settings: Settings) -> Iterator[tuple[str, Path]]:
    """The files whose end an operator has to know: certificates, and the authority of the members."""
    for key, path in files(settings):
        if key.endswith("certificate") or key == f"peer.{_AUTHORITY}":
            yield key, path


def _set(table: str, **found: Path | None) -> Iterator[tuple[str, Path]]:
    for key, path in found.items():
        if path is not None:
            yield f"{table}.{key}", path


def valid_until(key: str, text: bytes) -> datetime | None:
    """Until when a file is of use; None: it cannot be read. A chain ends with the first of its certificates
    that ends, authorities with the last one.
    """
    from cryptography import x509  # here, because the import is slow

    try:
        ends = [one.not_valid_after_utc for one in x509.load_pem_x509_certificates(text)]
    except ValueError:
        return None
    return max(ends) if key.endswith(f".{_AUTHORITY}") else min(ends)


def ending(until: Mapping[str, datetime], now: datetime) -> list[str]:
    """A sentence for each certificate that has ended, or ends soon; the first to end first."""
    told = []
    for key, end in sorted(until.items(), key=lambda one: one[1]):
        at = timestamp(end)
        if end <= now:
            told.append(f"the certificate {key} has ended at {at}, and is refused: put a new one in its file")
        elif end - now < SOON:
            left = spell(end - now)
            told.append(f"the certificate {key} ends in {left}, at {at}: put a new one in its file")
    return told


def certificates_ending(settings: Settings, now: datetime) -> list[str]:
    """The same of the files as they are now."""
    found = {}
    for key, path in shown(settings):
        try:
            end = valid_until(key, path.read_bytes())
        except OSError:  # an error of that setting
            continue
        if end:
            found[key] = end
    return ending(found, now)
