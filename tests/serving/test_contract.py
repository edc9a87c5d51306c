"""The OpenAPI document is true: requests that it makes, right ones and wrong ones, are answered as it says."""

from __future__ import annotations

import os

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance  # names, lengths and widths are the model's

from servers import Running

CASES = int(os.environ.get("ESSENT_CASES", "20"))  # of each operation; 700 make more than 10,000 in all


@pytest.mark.slow
def test_answers_match_the_openapi_document(server: Running) -> None:
    schema = schemathesis.openapi.from_url(server.url + "/openapi.json")
    count = 0
    with requests.Session() as session:
        for result in schema.get_all_operations():
            operation = result.ok()
            kinds = [operation.as_strategy(GenerationMode.POSITIVE)]
            if operation.body or operation.path_parameters or operation.query:
                kinds.append(operation.as_strategy(GenerationMode.NEGATIVE))

            @given(case=st.one_of(kinds))
            @settings(max_examples=CASES, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
            def answered(case: Case) -> None:
                nonlocal count
                count += 1
                response = case.call_and_validate(session=session, excluded_checks=[positive_data_acceptance])
                assert response.status_code < 500 or "/health" in str(case.path)

            answered()
    print(f"{count} requests")
