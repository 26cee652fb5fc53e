"""Verbs of requests to the API server, and the expiry of its credentials."""

import base64
import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from penstock.clients.kubernetes.credentials import expiry_times_s
from penstock.clients.kubernetes.rest_client import api_verb

PODS = "https://h:6443/api/v1/namespaces/default/pods"
SERVICES = "https://h/apis/serving.penstock.dev/v1alpha1/namespaces/n/inferenceservices"


@pytest.mark.parametrize(
    ("method", "url", "verb"),
    [
        ("GET", PODS, "list"),
        ("GET", PODS + "?labelSelector=a%3Dwatch", "list"),
        ("GET", PODS + "?watch=true&resourceVersion=5", "watch"),
        ("GET", PODS + "/a", "get"),
        ("GET", PODS + "/a/status", "get"),
        ("GET", "https://h/api/v1/pods", "list"),
        ("GET", "https://h/api/v1/namespaces", "list"),
        ("GET", "https://h/api/v1/namespaces/default", "get"),
        ("GET", SERVICES, "list"),
        ("GET", SERVICES + "/chat", "get"),
        ("POST", PODS, "create"),
        ("PUT", PODS + "/a", "update"),
        ("PATCH", SERVICES + "/chat/status", "patch"),
        ("DELETE", PODS + "/a", "delete"),
    ],
)
def test_verb_is_that_of_rbac(method, url, verb):
    assert api_verb(method, url) == verb


def authority(name, days):
    """A CA certificate in PEM, and when it expires."""
    key, subject = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
    )
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)
    certificate = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject)
        .public_key(key.public_key()).serial_number(x509.random_serial_number())
        .not_valid_before(end - timedelta(days=1000)).not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    return certificate.public_bytes(Encoding.PEM), end.timestamp()


def token(claims):
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"Bearer e30.{body}.c2ln"


def configuration(ca=None, bearer=""):
    api_key = {"BearerToken": bearer} if bearer else {}
    return SimpleNamespace(ssl_ca_cert=ca, api_key=api_key)


def test_the_first_ca_to_expire_counts(tmp_path):
    (first, soon_s), (second, _) = authority("a", 10), authority("b", 100)
    path = tmp_path / "ca.crt"
    path.write_bytes(second + first)
    assert expiry_times_s(configuration(str(path))) == {"ca": soon_s}


def test_expiry_of_a_service_accounts_token():
    assert expiry_times_s(configuration(bearer=token({"exp": 1.8e9}))) == {"token": 1.8e9}


@pytest.mark.parametrize("bearer", ["", "opaque", token({}), token([]), "Bearer a.b.c"])
def test_what_does_not_say_when_it_expires_is_left_out(tmp_path, bearer):
    (tmp_path / "ca.crt").write_text("no certificate")
    for path in (None, str(tmp_path / "none"), str(tmp_path / "ca.crt")):
        assert expiry_times_s(configuration(path, bearer)) == {}
