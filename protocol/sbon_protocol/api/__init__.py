"""Requests and answers of a node's HTTP API, with the names and fields of ``GET /v1/openapi.json`` (docs/api.md).

Node and client share these types. The client ignores unknown fields of a newer node. Names of times end in their unit; None means
"not known".
"""
