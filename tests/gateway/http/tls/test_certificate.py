"""Files of certificates that cannot be used, and what their errors say."""

import os
import ssl
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives import serialization
from tests.support.sources.certificates import CERTIFICATE, KEY, loopback_certificate

from penstock.errors import CertificateError
from penstock.gateway.http.certificate import ServedCertificate


def remove(name):
    return lambda folder: (folder / name).unlink()


def write(name, content):
    return lambda folder: (folder / name).write_text(content)


def expire(folder):
    loopback_certificate(folder, timedelta(minutes=-1))


def other_key(folder):
    certificate = (folder / CERTIFICATE).read_bytes()
    loopback_certificate(folder)
    (folder / CERTIFICATE).write_bytes(certificate)


def encrypt(folder):
    key = serialization.load_pem_private_key((folder / KEY).read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    form = serialization.PrivateFormat.PKCS8
    (folder / KEY).write_bytes(key.private_bytes(serialization.Encoding.PEM, form, encryption))


def as_certificate_is_the_key(folder):
    (folder / CERTIFICATE).write_bytes((folder / KEY).read_bytes())


def as_key_is_the_certificate(folder):
    (folder / KEY).write_bytes((folder / CERTIFICATE).read_bytes())


def make_folder(name):
    def change(folder):
        (folder / name).unlink()
        (folder / name).mkdir()

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove(CERTIFICATE), "{certificate} cannot be read: No such file or directory"),
        (remove(KEY), "{key} cannot be read: No such file or directory"),
        (make_folder(CERTIFICATE), "{certificate} cannot be read: Is a directory"),
        (write(CERTIFICATE, "secret"), "{certificate} has no certificate in PEM format"),
        (write(CERTIFICATE, ""), "{certificate} has no certificate in PEM format"),
        (as_certificate_is_the_key, "{certificate} has no certificate in PEM format"),
        (write(KEY, "secret"), "{key} has no private key in PEM format"),
        (write(KEY, ""), "{key} has no private key in PEM format"),
        (as_key_is_the_certificate, "{key} has no private key in PEM format"),
        (other_key, "the key in {key} does not belong to the first certificate in {certificate}"),
        (encrypt, "{key} has a passphrase; remove it, as with `openssl pkey`"),
        (expire, "{certificate} cannot be used: certificate has expired"),
    ],
)
def test_file_that_cannot_be_used_is_named(tmp_path, change, message):
    loopback_certificate(tmp_path)
    change(tmp_path)
    certificate, key = tmp_path / CERTIFICATE, tmp_path / KEY
    with pytest.raises(CertificateError) as raised:
        ServedCertificate(certificate, key)
    assert str(raised.value) == message.format(certificate=certificate, key=key)


@pytest.fixture
def served(tmp_path):
    loopback_certificate(tmp_path)
    return ServedCertificate(tmp_path / CERTIFICATE, tmp_path / KEY)


def test_unchanged_files_are_not_loaded_again(served):
    context = served.context
    assert not served.reload_if_changed()
    assert served.context is context
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_same_size_and_time_in_another_inode_is_a_change(served, tmp_path):
    path = tmp_path / CERTIFICATE
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    found = path.stat()
    os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))
    copy.rename(path)
    context = served.context
    assert served.reload_if_changed()
    assert served.context is not context


def test_missing_file_is_an_error_once_until_it_is_back(served, tmp_path):
    context = served.context
    (tmp_path / KEY).rename(tmp_path / "moved")
    with pytest.raises(CertificateError):
        served.reload_if_changed()
    assert not served.reload_if_changed()
    assert served.context is context
    (tmp_path / "moved").rename(tmp_path / KEY)
    assert served.reload_if_changed()
