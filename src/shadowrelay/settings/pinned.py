"""Reads the certificates by which peers beyond the boundary are known."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def pinned_certificate(file: Path) -> bytes:
    """The first certificate in a PEM file, as DER: that of the peer itself. Raises OSError, ValueError."""
    found = _PEM.search(file.read_text("ascii"))
    if found is None:
        raise ValueError("holds no certificate in PEM")
    return ssl.PEM_cert_to_DER_cert(found[0])
