"""The OpenAPI document against the server: generated requests of every path get answers that the document describes."""

from typing import cast

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import gaflow
from gaflow.data import open_data
from gaflow.jobs import attribute
from gaflow.web import Limits, create_app
from tests.support.servers import running

pytestmark = pytest.mark.slow

TEXT = "a good film, not a bad one"
CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)
EVERY_HEALTH_CHECK = cast("list[HealthCheck]", list(HealthCheck))  # as its metaclass is not known to iterate over it


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    explainer = gaflow.Explainer()
    attribute(explainer, open_data([TEXT, "a bad film"]), folder / "run", ["agf"])
    explainer(TEXT, "agf").save(folder / "one.safetensors")
    limits = Limits(tokens=40, kept_bytes=1 << 24)
    with running(folders=[folder / "run", folder / "one.safetensors"], limits=limits) as address:
        yield address


@pytest.fixture(scope="module")
def served_values(address):
    """What requests can name: half of them do, or most would only be told that there is no such thing."""

    def ask(path, **headers):
        response = requests.post(f"{address}api/v1/{path}", json={"text": TEXT}, headers=headers, timeout=600)
        return response.json()["id"]

    key = ask("explain")
    return {
        "id": key,
        "first": key,
        "second": ask("explain"),
        "key": ask("predictions", Prefer="respond-async"),
        "name": "run",
        "text": TEXT,
    }


document = schemathesis.openapi.from_dict(create_app().openapi())


@document.parametrize()
@settings(max_examples=20, derandomize=True, deadline=None, suppress_health_check=EVERY_HEALTH_CHECK)
def test_every_request_gets_an_answer_that_the_document_describes(case, address, served_values):
    arguments = repr((case.body, case.path_parameters))
    if len(arguments) % 2:
        for part in (case.body, case.path_parameters):
            if isinstance(part, dict):
                part.update({name: value for name, value in served_values.items() if name in part})
    if case.method == "DELETE" and case.path_parameters.get("key") == served_values["key"]:
        case.path_parameters["key"] = "nothing"
    case.call_and_validate(checks=CHECKS, base_url=address, timeout=600)
