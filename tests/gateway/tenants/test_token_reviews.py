"""Tokens of ServiceAccounts: which the API server is asked about, how often, and what counts."""

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.oidc_issuer import unsigned

from penstock.core.tenants.tenant import ServiceAccount
from penstock.errors import Forbidden, Transient
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.tenants.proven_identity import ProvenIdentity, TokenRefusal, VerifiedToken
from penstock.gateway.tenants.token_reviews import (
    ACCEPTED_S,
    MAX_REVIEWS,
    MAX_WAITING,
    REFUSED_S,
    TokenReviews,
)
from penstock.gateway.tenants.unverified_token import UnverifiedToken, read_token

AUDIENCE = "penstock-gateway"
USER = "system:serviceaccount:batch:runner"
FOUND = ProvenIdentity("batch", "runner")


def token_of(user: str = USER, audience: object = (AUDIENCE,), number: int = 0) -> UnverifiedToken:
    claims = {"sub": user, "aud": audience, "iss": "https://kubernetes", "jti": str(number)}
    read = read_token(unsigned(claims, {"alg": "RS256"}))
    assert read is not None
    return read


class ApiServer:
    """Answers TokenReviews. status: of each answer. may_answer: cleared to let reviews wait."""

    def __init__(self) -> None:
        self.status: object = accepted()
        self.error: Exception | None = None
        self.reviews: list[dict[str, Any]] = []
        self.in_progress = self.most = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def review(self, body: dict[str, Any]) -> Mapping[str, Any]:
        self.reviews.append(body)
        self.in_progress += 1
        self.most = max(self.most, self.in_progress)
        await self.may_answer.wait()
        self.in_progress -= 1
        if self.error is not None:
            raise self.error
        return {**body, "status": self.status}


def accepted(user: str = USER, audiences: object = (AUDIENCE,)) -> dict[str, Any]:
    return {"authenticated": True, "user": {"username": user}, "audiences": audiences}


class Stand:
    """Reviews at an API server, at a time that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.server = ApiServer()
        self.reviews = TokenReviews(self.server.review, AUDIENCE, lambda: self.now_s)
        self.reviews.replace(
            [
                ("batch", ServiceAccount("runner", "batch", "runner")),
                ("young", ServiceAccount("taken", "batch", "runner")),
            ]
        )

    async def verify(self, token: UnverifiedToken) -> VerifiedToken | TokenRefusal:
        assert self.reviews.may_accept(token)
        return await self.reviews.verify(hashlib.sha256(token.text.encode()).digest(), token)


@pytest.mark.parametrize(
    ("token", "may_accept"),
    [
        (token_of(), True),
        (token_of(audience=AUDIENCE), True),
        (token_of(audience=["x", AUDIENCE]), True),
        (token_of(audience=["https://kubernetes"]), False),
        (token_of(audience=None), False),
        (token_of("system:serviceaccount:batch:other"), False),
        (token_of("batch:runner"), False),
        (token_of(""), False),
    ],
)
async def test_only_tokens_of_named_accounts_are_reviewed(
    token: UnverifiedToken,
    may_accept: bool,
) -> None:
    assert Stand().reviews.may_accept(token) is may_accept


async def test_a_review_asks_for_the_audience_and_proves_the_identity() -> None:
    stand, token = Stand(), token_of()
    assert await stand.verify(token) == VerifiedToken(FOUND, stand.now_s + ACCEPTED_S)
    assert [review["spec"] for review in stand.server.reviews] == [
        {"token": token.text, "audiences": [AUDIENCE]}
    ]


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"error": "invalid"},
        accepted() | {"authenticated": False},
        accepted() | {"authenticated": "true"},
        accepted(audiences=[]),
        accepted(audiences=None),
        accepted(audiences=["https://kubernetes"]),
        accepted("system:serviceaccount:batch:other"),
        accepted() | {"user": None},
    ],
)
async def test_other_answers_are_refused_for_some_seconds(status: object) -> None:
    stand, token = Stand(), token_of()
    stand.server.status = status
    for _ in range(3):
        assert await stand.verify(token) is TokenRefusal.NOT_ACCEPTED
    assert len(stand.server.reviews) == 1
    stand.now_s += REFUSED_S
    stand.server.status = accepted()
    assert isinstance(await stand.verify(token), VerifiedToken)


async def test_a_token_is_reviewed_once_at_a_time() -> None:
    stand = Stand()
    stand.server.may_answer.clear()
    checks = [asyncio.create_task(stand.verify(token_of())) for _ in range(20)]
    await asyncio.sleep(0.01)
    checks[0].cancel()  # its client leaves; the others still wait for the same review
    stand.server.may_answer.set()
    outcomes = await asyncio.gather(*checks[1:])
    assert {each.identity for each in outcomes if isinstance(each, VerifiedToken)} == {FOUND}
    assert len(stand.server.reviews) == 1


async def test_reviews_in_progress_are_bounded() -> None:
    stand = Stand()
    stand.server.may_answer.clear()
    most = MAX_REVIEWS + MAX_WAITING
    checks = [asyncio.create_task(stand.verify(token_of(number=i))) for i in range(most)]
    await asyncio.sleep(0.01)
    with pytest.raises(RequestError) as error:
        await stand.verify(token_of(number=most))
    assert (error.value.status, error.value.retry_after_s) == (503, 1)
    stand.server.may_answer.set()
    outcomes = await asyncio.gather(*checks)
    assert all(isinstance(each, VerifiedToken) for each in outcomes)
    assert stand.server.most == MAX_REVIEWS
    assert isinstance(await stand.verify(token_of(number=most)), VerifiedToken)


@pytest.mark.parametrize("error", [Transient("down"), Forbidden("no right")])
async def test_without_an_answer_it_is_a_503_and_no_refusal(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    stand, token = Stand(), token_of()
    error.args = (f"the request {token.text} failed",)
    stand.server.error = error
    with pytest.raises(RequestError) as failed:
        await stand.verify(token)
    assert failed.value.status == 503
    assert token.text not in failed.value.message + caplog.text
    assert type(error).__name__ in caplog.text
    stand.server.error = None
    assert isinstance(await stand.verify(token), VerifiedToken)


async def test_an_account_that_no_tenant_has_any_longer_is_refused() -> None:
    stand, token = Stand(), token_of()
    stand.server.may_answer.clear()
    check = asyncio.create_task(stand.verify(token))
    await asyncio.sleep(0.01)
    stand.reviews.replace([])
    stand.server.may_answer.set()
    assert await check is TokenRefusal.NOT_ACCEPTED
