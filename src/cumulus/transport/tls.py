"""TLS between hosts: each has a certificate, and all trust the authorities of one file."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from cumulus.errors import UsageError


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files in PEM form.

    Parameters
    ----------
    ca
        The certificates that are trusted.
    cert, key
        The certificate of this host, for each name and address by which others reach it, and its key; "" where nobody
        connects to.
    """

    ca: str
    cert: str = ""
    key: str = ""

    def plain(self) -> Mapping[str, str]:
        """Return the names of the files, as JSON has them."""
        return {"ca": self.ca, "cert": self.cert, "key": self.key}

    def server_context(self) -> ssl.SSLContext:
        """Return how this host shows who it is.

        Raises
        ------
        UsageError
            If a file cannot be used.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        try:
            context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as problem:
            raise _unusable(f"the certificate {self.cert} with the key {self.key}", problem) from None
        return context

    def client_context(self) -> ssl.SSLContext:
        """Return how other hosts have to show who they are.

        Raises
        ------
        UsageError
            If the file cannot be used.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ssl.SSLError) as problem:
            raise _unusable(f"the certificates of {self.ca}", problem) from None
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context


def _unusable(what: str, problem: OSError) -> UsageError:
    return UsageError(
        f"{what} cannot be used: {problem.strerror or problem.args[-1]}",
        hint="Give files in PEM form that this user may read, and a key that belongs to the certificate.",
    )
