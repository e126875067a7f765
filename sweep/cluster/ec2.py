"""What EC2 would refuse in a `node_config` of a cluster file, by the description of its calls in botocore."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

PREFIXES = {"ImageId": "ami-", "SubnetIds": "subnet-", "SecurityGroupIds": "sg-"}
RAYS_OWN = ("SubnetIds",)
"""Fields of a `node_config` that Ray replaces before it calls EC2."""
KINDS: dict[str, Any] = {"structure": dict, "list": list, "string": str, "integer": int, "boolean": bool}


def machine_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong in a `node_config`, each as `.FIELD: reason`; asks no account."""
    import botocore.session

    for field, prefix in PREFIXES.items():
        values = config.get(field) or []
        for value in [values] if isinstance(values, str) else values:
            if not str(value).startswith(prefix):
                yield f".{field}: got {value}, want an id that begins with {prefix}"
    call = botocore.session.get_session().get_service_model("ec2").operation_model("RunInstances")
    yield from _refused({key: value for key, value in config.items() if key not in RAYS_OWN}, call.input_shape, "")


def _refused(value: Any, shape: Any, place: str) -> Iterator[str]:
    """Yield unknown fields, values of another type, and values that are none of those that a field may have."""
    if not isinstance(value, KINDS.get(shape.type_name, object)):
        yield f"{place}: got {value!r}, want type {shape.type_name}"
    elif shape.type_name == "structure":
        for name, each in value.items():
            if name in shape.members:
                yield from _refused(each, shape.members[name], f"{place}.{name}")
            else:
                yield f"{place}.{name}: EC2 has no such field{_meant(name, shape.members)}"
    elif shape.type_name == "list":
        for index, each in enumerate(value):
            yield from _refused(each, shape.member, f"{place}.{index}")
    elif (allowed := getattr(shape, "enum", None)) and value not in allowed:
        yield f"{place}: botocore knows no {value!r}{_meant(value, allowed)}"


def _meant(name: str, known: Any) -> str:
    close = get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
