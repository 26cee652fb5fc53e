"""The certificate that the gateway shows to clients, and its renewal while the gateway runs."""

import os
import ssl
from pathlib import Path

from penstock.errors import CertificateError

# Version of a file, which differs once the file was replaced: its path without links (Kubernetes swaps a link
# in the volume of a Secret), inode, time of change in ns, and size. None: the file cannot be read.
FileVersion = tuple[str, int, int, int] | None


class ServedCertificate:
    """A certificate and its key, in files that may be replaced.

    certificate: PEM, the gateway's own certificate first and then those of its issuers. key: PEM, without a
    passphrase. context: for new connections; open ones keep theirs. expires_s: when the certificate expires,
    in seconds since the epoch.
    Raises CertificateError, which names the file and has none of its content.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate, self._key = certificate, key
        self._version = self._file_versions()
        self.context, self.expires_s = _load(certificate, key)

    def reload_if_changed(self) -> bool:
        """Load the files again if they have changed. Returns whether there is a new certificate.

        Raises CertificateError, once for each change, and keeps the old certificate then.
        """
        version = self._file_versions()
        if version == self._version:
            return False
        try:
            loaded = _load(self._certificate, self._key)
        except CertificateError:
            if self._file_versions() != version:  # half replaced: the next call reads the rest too
                return False
            self._version = version
            raise
        self._version = version
        self.context, self.expires_s = loaded
        return True

    def _file_versions(self) -> tuple[FileVersion, FileVersion]:
        return _version(self._certificate), _version(self._key)


def _version(path: Path) -> FileVersion:
    try:
        resolved = path.resolve(strict=True)
        found = os.stat(resolved)
    except OSError:
        return None
    return str(resolved), found.st_ino, found.st_mtime_ns, found.st_size


def _load(certificate: Path, key: Path) -> tuple[ssl.SSLContext, float]:
    """Read and check both files. Returns the context of a server, and when the certificate expires."""
    for path in (certificate, key):
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            raise CertificateError(f"{path} cannot be read: {error.strerror}") from None
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.minimum_version = ssl.TLSVersion.TLSv1_2
    server.set_alpn_protocols(["http/1.1"])
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        client.load_verify_locations(cafile=certificate)
    except ssl.SSLError:
        raise CertificateError(f"{certificate} has no certificate in PEM format") from None
    _load_key(server, certificate, key)
    return server, _expiry_s(server, client, certificate)


def _load_key(server: ssl.SSLContext, certificate: Path, key: Path) -> None:
    def passphrase() -> str:  # without it, OpenSSL asks at the terminal
        raise CertificateError(f"{key} has a passphrase; remove it, as with `openssl pkey`")

    try:
        server.load_cert_chain(certificate, key, password=passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            message = f"the key in {key} does not belong to the first certificate in {certificate}"
        elif error.reason is None or "PEM" in error.library:
            message = f"{key} has no private key in PEM format"
        else:
            message = f"{certificate} and {key} cannot be used: {error.reason}"
        raise CertificateError(message) from None


def _expiry_s(server: ssl.SSLContext, client: ssl.SSLContext, certificate: Path) -> float:
    """Return when the certificate expires, in seconds since the epoch.

    A handshake in memory with a client that trusts the file reads and checks it: the module ssl does not
    read certificates of others than authorities from files.
    """
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    waiting = list(ends)
    while waiting:
        end = waiting.pop(0)
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(end)
        except ssl.SSLCertVerificationError as error:
            raise CertificateError(
                f"{certificate} cannot be used: {error.verify_message}"
            ) from None
        except ssl.SSLError as error:
            raise CertificateError(f"{certificate} cannot be used: {error.reason}") from None
    found = ends[0].getpeercert()
    assert found is not None
    return float(ssl.cert_time_to_seconds(str(found["notAfter"])))
